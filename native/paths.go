package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// ErrNotFound is wrapped when no folder holds a ggml library.
var ErrNotFound = errors.New("ggml library not found")

// Advice says how to get a library; it belongs behind ErrNotFound and
// ErrMismatch in messages to people.
const Advice = "fetch the pinned one with native/ggml/fetch.sh, install your system's (Debian: libggml0, Homebrew: ggml), " +
	"or name the folder with --ggml-lib DIR or $SDTOOL_GGML"

// Paths are the files of one ggml library.
type Paths struct {
	Dir  string // folder that backends are loaded from
	Base string // libggml-base: types, tensors, graphs, scheduler
	Core string // libggml: the registry of backends
}

// The names in use: libggml.so, libggml.so.0, libggml.v0.4.0.so, libggml.0.dylib, ggml.dll.
var (
	baseName = regexp.MustCompile(`^(lib)?ggml-base((\.v?\d+)(\.\d+)*)?\.(so|dylib|dll)(\.\d+)*$`)
	coreName = regexp.MustCompile(`^(lib)?ggml((\.v?\d+)(\.\d+)*)?\.(so|dylib|dll)(\.\d+)*$`)
)

// Find returns the library in the first of the folders that holds a complete
// one, empty names being skipped. A folder may also be a checkout's
// native/ggml, whose fetched packages lie deeper. With no folder given the
// system's usual ones are searched. It fails with ErrNotFound.
func Find(dirs ...string) (Paths, error) {
	dirs = slices.DeleteFunc(slices.Clone(dirs), func(d string) bool { return d == "" })
	if len(dirs) == 0 {
		dirs = SystemDirs()
	}
	for _, dir := range dirs {
		for _, d := range []string{dir, PackageDir(dir)} {
			if p, ok := inDir(d); ok {
				return p, nil
			}
		}
	}
	return Paths{}, fmt.Errorf("%w in %s; %s", ErrNotFound, strings.Join(dirs, ", "), Advice)
}

// PackageDir returns where native/ggml (the folder that holds the lock file)
// keeps the fetched library of this system.
func PackageDir(dir string) string {
	name := packageName(runtime.GOOS, runtime.GOARCH)
	return filepath.Join(dir, "node_modules", "@node-llama-cpp", name, "bins", name)
}

func packageName(goos, goarch string) string {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[goarch]
	switch goos {
	case "darwin":
		return "mac-" + arch + "-metal"
	case "windows":
		return "win-" + arch
	}
	return goos + "-" + arch
}

// SystemDirs returns the folders where package managers put ggml.
func SystemDirs() []string {
	switch runtime.GOOS {
	case "darwin":
		return []string{"/opt/homebrew/opt/ggml/lib", "/opt/homebrew/lib", "/usr/local/lib"}
	case "windows":
		return nil
	}
	triple := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	dirs := []string{"/usr/local/lib", "/usr/lib64", "/usr/lib"}
	if triple != "" {
		dirs = append([]string{"/usr/lib/" + triple}, dirs...)
	}
	return dirs
}

// inDir looks for both files in one folder. Of several versions the shortest
// name wins, which is the link that the package manager keeps current.
func inDir(dir string) (Paths, bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Paths{}, false
	}
	var base, core string
	for _, e := range entries {
		name := e.Name()
		if baseName.MatchString(name) && better(name, base) {
			base = name
		}
		if coreName.MatchString(name) && better(name, core) {
			core = name
		}
	}
	if base == "" || core == "" {
		return Paths{}, false
	}
	// An absolute path keeps the loader from searching elsewhere for a bare name.
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return Paths{Dir: backendDir(dir), Base: filepath.Join(dir, base), Core: filepath.Join(dir, core)}, true
}

func better(name, than string) bool {
	return than == "" || len(name) < len(than)
}

// backendDir is where the backends of a library in dir lie: beside it, or in
// the folder that distributions split them off to.
func backendDir(dir string) string {
	for _, sub := range []string{"ggml/backends0", "ggml/backends", "ggml"} {
		split := filepath.Join(dir, filepath.FromSlash(sub))
		if found, _ := filepath.Glob(filepath.Join(split, "libggml-cpu*")); len(found) > 0 {
			return split
		}
	}
	return dir
}

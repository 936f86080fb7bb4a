// Package nativetest gives tests the ggml library.
package nativetest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/sdtool/sdtool/native"
)

// Library returns the library that $SDTOOL_GGML names, the one fetched into
// native/ggml, or the system's. Without one the test is skipped with the
// reason, and fails where $CI is set, so that skips cannot hide there.
func Library(t testing.TB) *native.Library {
	t.Helper()
	paths, err := native.Find(Dirs()...)
	var lib *native.Library
	if err == nil {
		lib, err = native.Open(paths)
	}
	if err == nil {
		return lib
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("the ggml library is required in CI: %v", err)
	}
	t.Skipf("needs the ggml library: %v", err)
	return nil
}

// Dirs returns the folders that Library searches.
func Dirs() []string {
	dirs := []string{os.Getenv("SDTOOL_GGML")}
	// This file's own place tells where the checkout is, whichever package's
	// test is running.
	if _, file, _, ok := runtime.Caller(0); ok {
		dirs = append(dirs, filepath.Join(filepath.Dir(file), "..", "ggml"))
	}
	return append(dirs, native.SystemDirs()...)
}

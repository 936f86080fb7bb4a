//go:build !windows

package native

import "github.com/ebitengine/purego"

// openShared makes the symbols global because libggml and the backends resolve
// theirs against libggml-base, whatever name it was loaded under.
func openShared(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

func symbol(lib uintptr, name string) (uintptr, error) { return purego.Dlsym(lib, name) }

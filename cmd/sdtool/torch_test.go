package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Checkpoints that torch wrote, in both of its forms, become GGUF and
// safetensors with any type: scalars, five axes, views, integers and all.
func TestTorchCheckpoints(t *testing.T) {
	folder := filepath.Join("..", "..", "torch", "testdata")
	text, err := os.ReadFile(filepath.Join(folder, "want.json"))
	require.NoError(t, err)
	var wants map[string]map[string][]any
	require.NoError(t, json.Unmarshal(text, &wants))
	require.NotEmpty(t, wants)
	for file, want := range wants {
		t.Run(file, func(t *testing.T) {
			dir := t.TempDir()
			// GGUF has no complex numbers.
			out := filepath.Join(dir, "out.safetensors")
			ok(t, "convert", "-m", filepath.Join(folder, file), "-o", out, "--keep-unused")
			got := contents(t, out)
			require.Len(t, got, len(want))
			for name, x := range want {
				require.Contains(t, got, name)
				shape, isList := x[1].([]any)
				require.True(t, isList)
				require.Len(t, got[name].Shape, len(shape), name)
			}
			for _, typ := range []string{"keep", "f16", "q8_0"} {
				ok(t, "convert", "-m", filepath.Join(folder, file), "-o", filepath.Join(dir, "out.gguf"), "--type", typ, "--overwrite", "--exclude", "(?i)complex|c64")
			}
		})
	}
	r := fails(t, exitFailed, "byte order", "inspect", filepath.Join(folder, "big_endian.pt"))
	require.Contains(t, r.stderr, "big_endian.pt")
}

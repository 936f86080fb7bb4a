package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// writeSparse writes a safetensors file in which only the tensors from number
// first on have data; the others are holes.
func writeSparse(t *testing.T, path string, infos []tensor.Info, tensors []raw, first int) {
	t.Helper()
	layout, err := safetensors.NewLayout(nil, infos)
	require.NoError(t, err)
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.Write(layout.Header)
	require.NoError(t, err)
	for i, x := range tensors {
		_, err = f.WriteAt(x.data, layout.Offsets[first+i])
		require.NoError(t, err)
	}
	require.NoError(t, f.Truncate(layout.Size))
	require.NoError(t, f.Close())
}

package native_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/tensor"
)

func TestTypeTableMatchesTheLibrary(t *testing.T) {
	lib := nativetest.Library(t)
	for _, d := range tensor.All() {
		id, ok := d.GGML()
		if !ok {
			continue
		}
		assert.True(t, lib.HasType(id), "the pinned library knows %s", d)
		assert.Equal(t, d.String(), lib.TypeName(id))
		assert.Equal(t, d.Block(), lib.BlockSize(id))
		assert.Equal(t, d.BlockBytes(), lib.TypeSize(id))
	}
	for _, id := range []int32{-1, 4, 5, 31, 36, 43, 1 << 30} {
		assert.False(t, lib.HasType(id), "id %d", id)
		assert.Empty(t, lib.TypeName(id))
		assert.Zero(t, lib.BlockSize(id))
		assert.False(t, lib.RequiresImatrix(id))
	}
}

func TestQuantizeChunkRoundTrip(t *testing.T) {
	lib := nativetest.Library(t)
	const rows, cols = 3, 512
	src := make([]float32, rows*cols)
	for i := range src {
		src[i] = float32(math.Sin(float64(i) * 0.37))
	}
	weights := make([]float32, cols)
	for i := range weights {
		weights[i] = 1 + float32(i%7)
	}
	for _, d := range tensor.All() {
		if !lib.CanQuantize(d) {
			continue
		}
		t.Run(d.String(), func(t *testing.T) {
			size, err := tensor.Info{DType: d, Shape: []int64{rows, cols}}.Bytes()
			require.NoError(t, err)
			dst := make([]byte, size)
			n, err := lib.QuantizeChunk(d, src, dst, rows, cols, weights)
			require.NoError(t, err)
			assert.Equal(t, size, n)
			back := make([]float32, len(src))
			require.NoError(t, lib.ToFloat(d, dst, back))
			var dot, norm float64
			for i := range src {
				dot += float64(src[i] * back[i])
				norm += float64(src[i] * src[i])
			}
			assert.InDelta(t, 1, dot/norm, 0.35, "the decoded values resemble the source")
		})
	}
}

func TestQuantizeChunkRefusesWhatWouldAbort(t *testing.T) {
	lib := nativetest.Library(t)
	src, dst, w := make([]float32, 512), make([]byte, 4096), make([]float32, 256)
	bad := []float32{float32(math.NaN())}
	for _, c := range []struct {
		name       string
		d          tensor.DType
		src        []float32
		dst        []byte
		rows, cols int64
		w          []float32
		want       string
	}{
		{"no ggml type", tensor.F8E4M3, src, dst, 2, 256, nil, "not supported"},
		{"activation type", tensor.Q8_K, src, dst, 2, 256, nil, "not supported"},
		{"integer", tensor.I32, src, dst, 2, 256, nil, "not supported"},
		{"needs weights", tensor.IQ2_XXS, src, dst, 2, 256, nil, "needs an importance matrix"},
		{"row is no block", tensor.Q4_K, src, dst, 4, 128, nil, "whole number of blocks"},
		{"short source", tensor.Q4_K, src, dst, 3, 256, nil, "source has 512"},
		{"short destination", tensor.Q4_K, src, dst[:100], 2, 256, nil, "destination has 100 bytes"},
		{"short weights", tensor.Q4_K, src, dst, 1, 512, w, "256 weights for 512 columns"},
		{"negative rows", tensor.Q4_K, src, dst, -1, 256, nil, "negative axis"},
		{"not a number", tensor.IQ3_S, append(bad, src...), dst, 2, 256, nil, "is not finite"},
		{"weight not a number", tensor.IQ3_S, src, dst, 2, 256, append(bad, w[1:]...), "weight NaN of column 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := lib.QuantizeChunk(c.d, c.src, c.dst, c.rows, c.cols, c.w)
			assert.ErrorContains(t, err, c.want)
		})
	}
	assert.Error(t, lib.ToFloat(tensor.Q4_0, dst[:17], src))
	assert.Error(t, lib.ToFloat(tensor.Q4_0, dst[:1800], src))
	assert.ErrorIs(t, lib.ToFloat(tensor.I32, dst[:16], src), native.ErrUnsupported)
}

func TestFindTellsWhereItLooked(t *testing.T) {
	dir := t.TempDir()
	_, err := native.Find("", dir)
	require.ErrorIs(t, err, native.ErrNotFound)
	assert.ErrorContains(t, err, dir)
	assert.ErrorContains(t, err, "fetch.sh")
}

func TestFindKnowsTheNamesInUse(t *testing.T) {
	for _, names := range [][2]string{
		{"libggml-base.so", "libggml.so"},
		{"libggml-base.so.0", "libggml.so.0"},
		{"libggml-base.so", "libggml.v0.4.0.so"},
		{"libggml-base.0.dylib", "libggml.0.dylib"},
		{"ggml-base.dll", "ggml.dll"},
	} {
		dir := t.TempDir()
		for _, n := range append(names[:], "libggml-cpu-haswell.so", "libllama.so") {
			require.NoError(t, os.WriteFile(filepath.Join(dir, n), nil, 0o600))
		}
		p, err := native.Find(dir)
		require.NoError(t, err)
		assert.Equal(t, native.Paths{Dir: dir, Base: filepath.Join(dir, names[0]), Core: filepath.Join(dir, names[1])}, p)
	}
}

func TestOpenRefusesFilesThatAreNoLibrary(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"libggml-base.so", "libggml.so"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, n), []byte("not a library"), 0o600))
	}
	p, err := native.Find(dir)
	require.NoError(t, err)
	_, err = native.Open(p)
	require.ErrorIs(t, err, native.ErrMismatch)
	assert.ErrorContains(t, err, "libggml-base.so")
}

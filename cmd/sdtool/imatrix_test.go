package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/tensor"
)

func TestImatrixMergeConvertShowCompare(t *testing.T) {
	dir := t.TempDir()
	a := matrixFile(t, filepath.Join(dir, "a.dat"), 2, map[string][]float32{"w": {2, 4, 6}, "only.a": {1}})
	b := matrixFile(t, filepath.Join(dir, "b.dat"), 3, map[string][]float32{"w": {3, 3, 3}})
	sum := filepath.Join(dir, "sum.gguf")
	r := ok(t, "imatrix", "merge", a, b, "-o", sum)
	require.Contains(t, r.stdout, "2 entries, gguf form")
	back := filepath.Join(dir, "back.dat")
	ok(t, "imatrix", "convert", sum, "-o", back)
	f, err := imatrix.Open(back)
	require.NoError(t, err)
	e, err := imatrix.NewIndex(f).Find("w")
	require.NoError(t, err)
	require.Equal(t, int64(5), e.Calls)
	w, err := e.Weights(1, 3)
	require.NoError(t, err)
	require.Equal(t, []float32{5, 7, 9}, w)
	require.NoError(t, f.Close())

	var shown matrixSummary
	require.NoError(t, json.Unmarshal([]byte(ok(t, "imatrix", "show", back, "--json").stdout), &shown))
	require.Equal(t, 2, shown.Entries)
	require.Contains(t, ok(t, "imatrix", "show", back, "--sort", "mean").stdout, "only.a")
	fails(t, exitUsage, `cannot sort by "size"`, "imatrix", "show", back, "--sort", "size")

	require.Contains(t, ok(t, "imatrix", "compare", a, back).stdout, "2 entries in both")
	require.Contains(t, ok(t, "imatrix", "compare", a, b).stdout, "only in")
	fails(t, exitFailed, `entry "only.a"`, "imatrix", "compare", a, b, "--min-cosine", "0")
	fails(t, exitFailed, "differ by more than", "imatrix", "compare", a, back, "--max-error", "0.001")
	ok(t, "imatrix", "compare", a, a, "--max-error", "0", "--json")
}

func TestImatrixPlot(t *testing.T) {
	dir := t.TempDir()
	in := matrixFile(t, filepath.Join(dir, "a.dat"), 2, map[string][]float32{"blk.0.w": slope(64), "blk.1.w": slope(64)})
	for _, name := range []string{"heat.png", "report.html"} {
		ok(t, "imatrix", "plot", in, "-o", filepath.Join(dir, name))
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Positive(t, info.Size())
	}
	fails(t, exitUsage, ".png or .html", "imatrix", "plot", in, "-o", filepath.Join(dir, "x.jpg"))
	fails(t, exitFailed, "already exists", "imatrix", "plot", in, "-o", filepath.Join(dir, "heat.png"))
}

func TestImatrixOutputsAreSafe(t *testing.T) {
	dir := t.TempDir()
	a := matrixFile(t, filepath.Join(dir, "a.dat"), 2, map[string][]float32{"w": {2, 4, 6}})
	b := matrixFile(t, filepath.Join(dir, "b.dat"), 2, map[string][]float32{"w": {2, 4}})
	before, err := os.ReadFile(a)
	require.NoError(t, err)
	fails(t, exitFailed, "also an input", "imatrix", "merge", a, a, "-o", a, "--overwrite")
	fails(t, exitFailed, `"w"`, "imatrix", "merge", a, b, "-o", filepath.Join(dir, "c.dat"))
	fails(t, exitUsage, "no output", "imatrix", "merge", a)
	after, err := os.ReadFile(a)
	require.NoError(t, err)
	require.Equal(t, before, after)
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 2)
}

// With a GGUF matrix the quantizer is fed sum/count, as llama-quantize does; with a
// .dat the stored values, as stable-diffusion.cpp does.
func TestConvertFeedsTheQuantizerWhatPeersDo(t *testing.T) {
	lib := nativetest.Library(t)
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("w.weight", 4, 256))
	dat := matrixFile(t, filepath.Join(dir, "m.dat"), 7, map[string][]float32{"w.weight": slope(256)})
	gguf := filepath.Join(dir, "m.gguf")
	ok(t, "imatrix", "convert", dat, "-o", gguf)
	src := make([]float32, 1024)
	for i := range src {
		src[i] = float32(i)/1024*2 - 1
	}
	for _, d := range []tensor.DType{tensor.Q4_K, tensor.IQ2_XXS, tensor.Q4_0, tensor.Q6_K} {
		for _, path := range []string{dat, gguf} {
			f, err := imatrix.Open(path)
			require.NoError(t, err)
			e, err := imatrix.NewIndex(f).Find("w.weight")
			require.NoError(t, err)
			weights := slope(256)
			if path == gguf {
				for j, s := range e.Sums {
					weights[j] = float32(s) / float32(e.Counts[0])
				}
			}
			require.NoError(t, f.Close())
			out := filepath.Join(dir, "out.gguf")
			ok(t, "convert", "-m", in, "-o", out, "--type", d.String(), "--imatrix", path, "--overwrite")
			want := make([]byte, 1024/d.Block()*d.BlockBytes())
			_, err = lib.QuantizeChunk(d, src, want, 4, 256, weights)
			require.NoError(t, err)
			require.Equal(t, want, contents(t, out)["w.weight"].data, "%s %s", d, filepath.Base(path))
		}
	}
}

func TestGroupsRefuseUnknownCommands(t *testing.T) {
	fails(t, exitUsage, "unknown command", "imatrix", "merg", "a.dat")
	fails(t, exitUsage, "unknown command", "engine", "foo")
	fails(t, exitUsage, "without --imatrix", "convert", "-m", "x.safetensors", "-o", "y.gguf", "--require-imatrix")
}

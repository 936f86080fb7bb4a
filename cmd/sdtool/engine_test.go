package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

// smallModel writes the reduced SD2-like model of engine/testdata, with a full
// vocabulary, under canonical names.
func smallModel(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "engine", "testdata", "reduced.json.gz"))
	require.NoError(t, err)
	defer f.Close()
	zr, err := gzip.NewReader(f)
	require.NoError(t, err)
	var all map[string]struct{ Tensors map[string][]int64 }
	require.NoError(t, json.NewDecoder(zr).Decode(&all))
	var m synth.Model
	for name, shape := range all["sd2"].Tensors {
		if strings.HasSuffix(name, "token_embedding.weight") {
			shape[0] = 49408
		}
		m = append(m, tensor.Info{Name: rename.SD2.Rename(name), Shape: shape})
	}
	slices.SortFunc(m, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
	path := filepath.Join(dir, "small.safetensors")
	require.NoError(t, synth.Write(path, m, tensor.F16, toHalf))
	return path
}

// toHalf is synth.Write's encoder for f16.
func toHalf(dst []byte, src []float32) error {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(float16.Fromfloat32(v)))
	}
	return nil
}

// useLibrary makes commands find the library that tests use.
func useLibrary(t *testing.T) {
	t.Helper()
	t.Setenv("SDTOOL_GGML", nativetest.Library(t).Paths.Dir)
}

func TestEngineInfo(t *testing.T) {
	useLibrary(t)
	assert.Contains(t, ok(t, "engine", "info").stdout, "CPU")
	var info libraryInfo
	require.NoError(t, json.Unmarshal([]byte(ok(t, "engine", "info", "--json").stdout), &info))
	assert.NotEmpty(t, info.Version)
	require.NotEmpty(t, info.Devices)
	assert.Positive(t, info.Devices[0].Total)
	fails(t, exitFailed, "fetch.sh", "engine", "info", "--ggml-lib", t.TempDir())

	bad := t.TempDir()
	for _, n := range []string{"libggml-base.so", "libggml.so"} {
		require.NoError(t, os.WriteFile(filepath.Join(bad, n), []byte("no library"), 0o600))
	}
	fails(t, exitFailed, "unsuitable ggml library", "engine", "info", "--ggml-lib", bad)
}

func TestGenerate(t *testing.T) {
	useLibrary(t)
	dir := t.TempDir()
	model := smallModel(t, dir)
	out := filepath.Join(dir, "out.png")
	common := []string{"generate", "-m", model, "-p", "a (cat:1.2)", "-n", "dog", "-W", "64", "-H", "128", "--steps", "2", "-t", "1", "--prediction", "eps"}
	ok(t, append(common, "-s", "5", "-b", "2", "-o", out)...)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	assert.Equal(t, []int{64, 128}, []int{img.Bounds().Dx(), img.Bounds().Dy()})
	assert.Contains(t, string(data), "Negative prompt: dog\nSteps: 2, CFG scale: 7, Seed: 5, Size: 64x128")

	second := filepath.Join(dir, "second.png")
	ok(t, append(common, "-s", "6", "-o", second)...)
	a, err := os.ReadFile(filepath.Join(dir, "out_2.png"))
	require.NoError(t, err)
	b, err := os.ReadFile(second)
	require.NoError(t, err)
	assert.Equal(t, a, b, "the second of a batch has the next seed")

	fails(t, exitUsage, "only .png", append(common, "-o", "x.jpg")...)
	fails(t, exitUsage, "unknown sampler", append(common, "--sampling-method", "nonsense", "-o", out)...)
	fails(t, exitUsage, "no model", "generate", "-p", "x", "-o", out)
	fails(t, exitFailed, "clip skip 9", append(common, "--clip-skip", "9", "-o", out)...)
}

func openMatrix(t *testing.T, path string) map[string]*imatrix.Entry {
	t.Helper()
	f, err := imatrix.Open(path)
	require.NoError(t, err)
	defer f.Close()
	all := make(map[string]*imatrix.Entry)
	for i, h := range f.Headers() {
		e, err := f.Read(i)
		require.NoError(t, err)
		all[h.Name] = e
	}
	return all
}

func same(t *testing.T, want, got map[string]*imatrix.Entry) {
	t.Helper()
	require.Len(t, got, len(want))
	for name, e := range want {
		require.Contains(t, got, name)
		assert.Equal(t, e.Calls, got[name].Calls, name)
		assert.InDeltaSlice(t, e.Sums, got[name].Sums, 1e-4*slices.Max(e.Sums), name)
	}
}

func TestCollect(t *testing.T) {
	useLibrary(t)
	dir := t.TempDir()
	model := smallModel(t, dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("p.txt"), []byte("a cat\n\na dog\na tree in the fog\n"), 0o600))
	common := []string{"imatrix", "collect", "-m", model, "--prompts", at("p.txt"), "-W", "64", "-H", "64", "--steps", "2", "-t", "1", "--prediction", "eps"}
	r := ok(t, append(common, "-o", at("whole.gguf"), "--images", at("look"))...)
	whole := openMatrix(t, at("whole.gguf"))
	assert.NotEmpty(t, whole)
	assert.Contains(t, r.stderr, "coverage: ")
	pictures, err := filepath.Glob(at("look/*.png"))
	require.NoError(t, err)
	assert.Len(t, pictures, 3)
	assert.NoFileExists(t, at("whole.gguf.checkpoint"))

	// Parts collected apart and merged are the whole.
	ok(t, append(common, "--shard", "1/2", "-o", at("one.gguf"))...)
	ok(t, append(common, "--shard", "2/2", "-o", at("two.gguf"))...)
	ok(t, "imatrix", "merge", at("one.gguf"), at("two.gguf"), "-o", at("merged.gguf"))
	same(t, whole, openMatrix(t, at("merged.gguf")))

	// A run that was stopped goes on where it was.
	ctx, cancel := context.WithCancel(context.Background())
	stop := &cancelAfter{cancel: cancel, word: "prompt 3 of 3"}
	a := &app{stdout: &bytes.Buffer{}, stderr: stop, getenv: os.Getenv}
	assert.Equal(t, exitInterrupted, a.run(ctx, append(common, "-o", at("stopped.gguf"))))
	assert.FileExists(t, at("stopped.gguf"), "what there is is written")
	fails(t, exitFailed, "--overwrite", append(common, "-o", at("stopped.gguf"))...)
	fails(t, exitFailed, "other prompts or options", append(common, "--steps", "3", "--resume", "-o", at("stopped.gguf"))...)
	r = ok(t, append(common, "--resume", "-o", at("stopped.gguf"))...)
	assert.Contains(t, r.stderr, "2 prompts finished earlier")
	same(t, whole, openMatrix(t, at("stopped.gguf")))

	require.NoError(t, os.WriteFile(at("empty.txt"), nil, 0o600))
	fails(t, exitFailed, "no prompts", "imatrix", "collect", "-m", model, "--prompts", at("empty.txt"), "-o", at("x.dat"))
	fails(t, exitUsage, "--shard", append(common, "--shard", "3/2", "-o", at("x.dat"))...)
	fails(t, exitUsage, "step weights", append(common, "--step-weight", "0", "-o", at("x.dat"))...)
	fails(t, exitUsage, "-o FILE", common...)
}

// cancelAfter cancels when a word has been written.
type cancelAfter struct {
	cancel context.CancelFunc
	word   string
}

func (c *cancelAfter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.word) {
		c.cancel()
	}
	return len(p), nil
}

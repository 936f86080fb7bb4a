package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// trustModel has weights to quantize, a vector, integers and an empty tensor.
func trustModel(t *testing.T, dir string) string {
	t.Helper()
	return writeFile(t, filepath.Join(dir, "in.safetensors"), map[string]string{"format": "pt", "k": "v"},
		rampTensor("a.weight", 8, 256), rampTensor("b.weight", 4, 64), rampTensor("norm.weight", 256),
		zeros("ids", tensor.I32, 5), rampTensor("c.weight", 3, 5), zeros("empty", tensor.F32, 0, 4))
}

func TestVerify(t *testing.T) {
	dir := t.TempDir()
	in, out := trustModel(t, dir), filepath.Join(dir, "out.gguf")
	ok(t, "convert", "-m", in, "-o", out, "--type", "q4_K")
	r := ok(t, "verify", out, "--against", in, "--type", "q4_K", "--strict")
	require.Contains(t, r.stdout, "a.weight")
	var list []verdictJSON
	require.NoError(t, json.Unmarshal([]byte(ok(t, "verify", out, "-m", in, "--type", "q4_K", "--json", "--max-rel-error", "0.2").stdout), &list))
	require.Len(t, list, 6)
	require.Equal(t, "a.weight", list[0].Name, "the worst comes first")
	require.Greater(t, list[0].RelError, 0.001)
	require.Greater(t, list[0].Cosine, 0.99)
	require.Zero(t, list[5].RelError)

	fails(t, exitFailed, "not as the conversion", "verify", out, "--against", in, "--type", "q4_K", "--max-rel-error", "0.0001")
	fails(t, exitFailed, "not as the conversion", "verify", out, "--against", in, "--type", "q8_0")
	fails(t, exitUsage, "nothing to compare with", "verify", out, "--type", "q4_K")
}

func TestVerifyFindsDamage(t *testing.T) {
	dir := t.TempDir()
	in, out := trustModel(t, dir), filepath.Join(dir, "out.safetensors")
	ok(t, "convert", "-m", in, "-o", out, "--type", "f16")
	whole := contents(t, out)
	damage := func(name string, change func(map[string]raw)) string {
		tensors := make(map[string]raw)
		for k, v := range whole {
			v.data = append([]byte(nil), v.data...)
			tensors[k] = v
		}
		change(tensors)
		var list []raw
		for _, v := range tensors {
			list = append(list, v)
		}
		return writeFile(t, filepath.Join(dir, name), nil, list...)
	}
	for name, change := range map[string]func(map[string]raw){
		"missing":                 func(m map[string]raw) { delete(m, "b.weight") },
		"shape":                   func(m map[string]raw) { x := m["b.weight"]; x.Shape = []int64{64, 4}; m["b.weight"] = x },
		"not planned":             func(m map[string]raw) { m["extra"] = rampTensor("extra", 2) },
		"not a finite number":     func(m map[string]raw) { x := m["a.weight"]; x.data[0], x.data[1] = 0, 0x7e; m["a.weight"] = x },
		"type: found f32, want f": func(m map[string]raw) { m["a.weight"] = rampTensor("a.weight", 8, 256) },
	} {
		path := damage("damaged.safetensors", change)
		r := fails(t, exitFailed, "not as the conversion", "verify", path, "--against", in, "--type", "f16")
		require.Contains(t, r.stdout, name)
	}
	flipped := damage("flipped.safetensors", func(m map[string]raw) { x := m["a.weight"]; x.data[101] ^= 1; m["a.weight"] = x })
	ok(t, "verify", flipped, "--against", in, "--type", "f16")
	require.Contains(t, fails(t, exitFailed, "not as the conversion", "verify", flipped, "--against", in, "--type", "f16", "--strict").stdout, "its bytes differ")
}

func TestVerifyWithImatrixWeighsErrors(t *testing.T) {
	dir := t.TempDir()
	in, out := trustModel(t, dir), filepath.Join(dir, "out.gguf")
	m := matrixFile(t, filepath.Join(dir, "m.dat"), 1, map[string][]float32{"a.weight": slope(256)})
	ok(t, "convert", "-m", in, "-o", out, "--type", "q4_K", "--imatrix", m)
	var list []verdictJSON
	require.NoError(t, json.Unmarshal([]byte(ok(t, "verify", out, "--against", in, "--type", "q4_K", "--imatrix", m, "--strict", "--json").stdout), &list))
	require.Positive(t, list[0].Weighted)
	require.True(t, *list[0].Same)
}

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	a := writeFile(t, filepath.Join(dir, "a.safetensors"), map[string]string{"k": "old", "gone": "x"}, rampTensor("same", 4), rampTensor("bytes", 4), rampTensor("shape", 2, 2), rampTensor("left", 1), rampTensor("type", 1))
	changed := rampTensor("bytes", 4)
	changed.data[9] ^= 1
	b := writeFile(t, filepath.Join(dir, "b.safetensors"), map[string]string{"k": "new"}, rampTensor("same", 4), changed, rampTensor("shape", 4), rampTensor("right", 1), zeros("type", tensor.I32, 1))
	require.Contains(t, ok(t, "diff", a, a).stdout, "no difference")
	r := sdtool(t, "diff", a, b, "--json")
	require.Equal(t, exitFailed, r.code)
	var list []changeJSON
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	kinds := make(map[string]string)
	for _, c := range list {
		kinds[c.Name] = c.Kind
	}
	require.Equal(t, map[string]string{"bytes": "bytes", "shape": "shape", "left": "only in first", "right": "only in second", "type": "dtype", "k": "metadata", "gone": "metadata"}, kinds)
	require.Contains(t, sdtool(t, "diff", a, b).stdout, "first at byte 9 of 16")
}

// What GGUF stores in another way is no difference between formats.
func TestDiffAcrossFormats(t *testing.T) {
	dir := t.TempDir()
	deep := rampTensor("deep", 2, 2, 2, 2, 2)
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), map[string]string{"note": "kept"}, rampTensor("w", 2, 32), deep, rampTensor("scalar"))
	out := filepath.Join(dir, "out.gguf")
	ok(t, "convert", "-m", in, "-o", out, "--no-provenance")
	r := sdtool(t, "diff", in, out, "--json")
	var list []changeJSON
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	for _, c := range list {
		require.Equal(t, "only in second", c.Msg[:min(14, len(c.Msg))], "%+v", c)
		require.Regexp(t, `^general\.`, c.Name, "only what GGUF adds of its own")
	}
}

func TestVerifySaysWhatItFound(t *testing.T) {
	dir := t.TempDir()
	bad := rampTensor("nan.weight", 2, 32)
	copy(bad.data, f32s(float32(math.NaN())))
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("w.weight", 2, 32), bad)
	out := filepath.Join(dir, "out.gguf")
	ok(t, "convert", "-m", in, "-o", out, "--type", "f16")
	r := ok(t, "verify", out, "--against", in, "--type", "f16")
	require.NotContains(t, r.stdout, "WEIGHTED", "no matrix, no weighted error")
	require.Contains(t, r.stdout, "2 tensors as the conversion makes them")
	require.Contains(t, r.stdout, "1 number not finite, as in the input")
	require.NotContains(t, ok(t, "verify", out, "--against", in, "--type", "f16", "--quiet").stdout, "as the conversion makes them")
}

func TestChecksum(t *testing.T) {
	dir := t.TempDir()
	in := trustModel(t, dir)
	fails(t, exitFailed, "no such file", "checksum", in, "--check")
	ok(t, "checksum", in)
	ok(t, "checksum", in, "--check")
	fails(t, exitFailed, "already exists", "checksum", in)
	data, err := os.ReadFile(in)
	require.NoError(t, err)
	data[len(data)-20] ^= 1
	require.NoError(t, os.WriteFile(in, data, 0o600))
	r := fails(t, exitFailed, "2 differences", "checksum", in, "--check")
	require.Contains(t, r.stdout, "its bytes differ")
	require.NoError(t, os.WriteFile(in+".sha256.json", []byte("{}"), 0o600))
	fails(t, exitFailed, "not a file of checksums", "checksum", in, "--check")
}

func TestSplitAndMergeGGUF(t *testing.T) {
	dir := t.TempDir()
	in, whole := trustModel(t, dir), filepath.Join(dir, "whole.gguf")
	ok(t, "convert", "-m", in, "-o", whole, "--type", "q8_0")
	for _, by := range [][]string{{"--max-tensors", "2"}, {"--max-size", "1KiB"}} {
		ok(t, append([]string{"split", whole, "-o", filepath.Join(dir, "part"), "--overwrite"}, by...)...)
		first, err := filepath.Glob(filepath.Join(dir, "part-00001-of-*.gguf"))
		require.NoError(t, err)
		require.Len(t, first, 1)
		f, err := gguf.Open(first[0])
		require.NoError(t, err)
		require.Len(t, f.Tensors, 6, "opening one part opens all")
		count, found := f.Metadata.Int(gguf.KeySplitTensors)
		require.True(t, found)
		require.Equal(t, int64(6), count)
		require.NoError(t, f.Close())
		back := filepath.Join(dir, "back.gguf")
		ok(t, "merge", first[0], "-o", back, "--overwrite")
		ok(t, "diff", whole, back)
		a, err := os.ReadFile(whole)
		require.NoError(t, err)
		b, err := os.ReadFile(back)
		require.NoError(t, err)
		require.Equal(t, a, b, "a round trip gives the same file")
		parts, err := filepath.Glob(filepath.Join(dir, "part-*"))
		require.NoError(t, err)
		for _, p := range parts {
			require.NoError(t, os.Remove(p))
		}
	}
	fails(t, exitUsage, "how large", "split", whole)
	fails(t, exitUsage, "end its name in .gguf", "merge", whole, "-o", filepath.Join(dir, "x.safetensors"))
}

func TestSplitAndMergeSafetensors(t *testing.T) {
	dir := t.TempDir()
	in := trustModel(t, dir)
	ok(t, "split", in, "-o", filepath.Join(dir, "part"), "--max-tensors", "2")
	index := filepath.Join(dir, "part.safetensors.index.json")
	require.FileExists(t, filepath.Join(dir, "part-00003-of-00003.safetensors"))
	back := filepath.Join(dir, "back.safetensors")
	ok(t, "merge", index, "-o", back)
	ok(t, "diff", in, back)
	cp, err := convert.Open(back, convert.OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"format": "pt", "k": "v"}, cp.Strings)
	require.NoError(t, cp.Close())
	fails(t, exitFailed, "already exists", "split", in, "-o", filepath.Join(dir, "part"), "--max-tensors", "2")
}

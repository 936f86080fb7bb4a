package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// The tests here are of faults met in the field, by their numbers in the
// project's list. Fault 21 is with the index tests.

func kindOf(t *testing.T, b []byte) safetensors.ErrorKind {
	t.Helper()
	_, err := safetensors.Open(save(t, "x.safetensors", b))
	var fe *safetensors.FormatError
	require.ErrorAs(t, err, &fe)
	return fe.Kind
}

func TestFault001SizesBeyond4GiB(t *testing.T) {
	infos := []tensor.Info{{Name: "big", DType: tensor.F16, Shape: []int64{2201170740}}, {Name: "small", DType: tensor.F32, Shape: []int64{4}}}
	l, err := safetensors.NewLayout(nil, infos)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "m.safetensors")
	require.NoError(t, os.WriteFile(path, l.Header, 0o600))
	if err := os.Truncate(path, l.Size); err != nil {
		t.Skip("no sparse files here: ", err)
	}
	want := []byte("0123456789abcdef")
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = w.WriteAt(want, l.Offsets[1])
	require.NoError(t, err)
	require.NoError(t, w.Close())
	f := open(t, path)
	assert.Equal(t, int64(4402341480), f.Tensors[0].Source.Size())
	assert.Equal(t, want, readAll(t, f.Tensors[1]))
}

func TestFault003TheHeaderLimitIsOneForBothWays(t *testing.T) {
	header := append(binary.LittleEndian.AppendUint64(nil, 100_000_001), "{}"...)
	header = append(header, bytes.Repeat([]byte{' '}, 100_000_001-2)...)
	_, err := safetensors.OpenReaderAt(bytes.NewReader(header), int64(len(header)), "x")
	assert.ErrorContains(t, err, "found a header length of 100000001 bytes, want at most 100000000")
	binary.LittleEndian.PutUint64(header, 100_000_000)
	_, err = safetensors.OpenReaderAt(bytes.NewReader(header), int64(len(header)-1), "x")
	assert.NoError(t, err)
	_, err = safetensors.NewLayout(map[string]string{"a": string(header[10:])}, nil)
	assert.ErrorContains(t, err, "longer than the 100000000 bytes that readers take")
}

func TestFault004SaysWhatTheFileIs(t *testing.T) {
	for _, c := range []struct{ text, msg string }{
		{"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n", "a Git LFS pointer"},
		{"<!DOCTYPE html><html></html>", "an HTML or XML page"},
		{"  <html>", "an HTML or XML page"},
		{"GGUF\x03\x00\x00\x00\x00\x00", "a GGUF file"},
		{"PK\x03\x04\x00\x00\x00\x00\x00", "a zip archive"},
		{"{\"weight_map\":{}}", "JSON text"},
		{string(make([]byte, 100)), "nothing but zero bytes"},
	} {
		_, err := safetensors.Open(save(t, "x.safetensors", []byte(c.text)))
		assert.ErrorContains(t, err, "not a safetensors file: this is "+c.msg)
	}
}

func TestFault005DataShorterThanTheHeaderSays(t *testing.T) {
	header := one("F32", "[4]", "[0,16]")
	f, err := safetensors.Open(save(t, "x.safetensors", file(header, 8)))
	var cut *safetensors.TruncatedError
	require.ErrorAs(t, err, &cut)
	assert.Equal(t, int64(8+len(header)+16), cut.Need)
	assert.Equal(t, int64(8+len(header)+8), cut.Have)
	assert.Equal(t, "a", f.Tensors[0].Name)
}

func TestFault006TrailingBytesGapsAndOverlaps(t *testing.T) {
	assert.Equal(t, safetensors.KindTrailing, kindOf(t, file(one("U8", "[4]", "[0,4]"), 12)))
	assert.Equal(t, safetensors.KindOffset, kindOf(t, file(two("[0,4]", "[8,12]"), 12)))
	assert.Equal(t, safetensors.KindOffset, kindOf(t, file(two("[0,4]", "[2,6]"), 6)))
}

func TestFault007EmptyHeadersAreValid(t *testing.T) {
	for _, metadata := range []map[string]string{nil, {}, {"key": "value"}} {
		for _, infos := range [][]tensor.Info{nil, {{Name: "a", DType: tensor.F32, Shape: []int64{0}}}} {
			path, _ := write(t, metadata, infos...)
			f := open(t, path)
			assert.Equal(t, metadata, f.Metadata)
			assert.Len(t, f.Tensors, len(infos))
			assert.Zero(t, f.Size%8)
		}
	}
}

func TestFault008DataNeedNotBeAligned(t *testing.T) {
	header := one("BF16", "[4]", "[0,8]")
	for len(header)%8 != 3 {
		header += " "
	}
	b := append(file(header, 0), "01234567"...)
	assert.Equal(t, []byte("01234567"), readAll(t, open(t, save(t, "m.safetensors", b)).Tensors[0]))
}

func TestFault015NamesThatAreThereTwice(t *testing.T) {
	b := file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8)
	assert.Equal(t, safetensors.KindDuplicateKey, kindOf(t, b))
	folder := t.TempDir()
	shard(t, folder, "1.safetensors", "a")
	shard(t, folder, "2.safetensors", "a", "b")
	_, err := safetensors.OpenIndex(index(t, folder, map[string]string{"a": "1.safetensors", "b": "2.safetensors"}))
	assert.ErrorContains(t, err, `tensor "a": the tensor is in 1.safetensors too`)
}

func TestFault020NamesBeyondASCII(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "модель")
	shard(t, folder, "тест é.safetensors", "вес")
	assert.Equal(t, []string{"вес"}, names(open(t, filepath.Join(folder, "тест é.safetensors"))))
}

func TestFault023EveryDTypeIsRead(t *testing.T) {
	for name, size := range map[string]string{"F64": "64", "I64": "64", "U64": "64", "C64": "64", "F32": "32", "I32": "32", "U32": "32",
		"F16": "16", "BF16": "16", "I16": "16", "U16": "16", "I8": "8", "U8": "8", "BOOL": "8",
		"F8_E4M3": "8", "F8_E5M2": "8", "F8_E8M0": "8", "F6_E2M3": "6", "F6_E3M2": "6", "F4": "4"} {
		f := open(t, save(t, "m.safetensors", file(one(name, "[8]", "[0,"+size+"]"), map[string]int{"64": 64, "32": 32, "16": 16, "8": 8, "6": 6, "4": 4}[size])))
		spelled, ok := f.Tensors[0].DType.Safetensors()
		assert.True(t, ok)
		assert.Equal(t, name, spelled)
	}
	for _, name := range []string{"F8_E4M3FNUZ", "F8_E5M2FNUZ", "C128", "F128"} {
		_, err := safetensors.Open(save(t, "x.safetensors", file(one(name, "[8]", "[0,8]"), 8)))
		assert.ErrorContains(t, err, name)
	}
}

func TestFault034Metadata(t *testing.T) {
	want := map[string]string{"format": "pt", "modelspec.title": "x"}
	path, _ := write(t, want, tensor.Info{Name: "a", DType: tensor.BF16, Shape: []int64{2}})
	assert.Equal(t, want, open(t, path).Metadata)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(b), `"dtype":"BF16"`)
	path, _ = write(t, nil, tensor.Info{Name: "a", DType: tensor.BF16, Shape: []int64{2}})
	b, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(b), "__metadata__")
}

func TestFault039RankZeroSurvives(t *testing.T) {
	path, _ := write(t, nil, tensor.Info{Name: "log_scale", DType: tensor.F32, Shape: []int64{}})
	assert.Empty(t, open(t, path).Tensors[0].Shape)
}

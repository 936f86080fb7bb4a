package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// file puts a header length before a header and n zero bytes behind it.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

// one is the header of tensor "a" with the given dtype, shape and data_offsets.
func one(dtype, shape, offsets string) string {
	return `{"a":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
}

// two is the header of tensors "a" and "b" of U8[n] at the given places.
func two(a, b string) string {
	return `{"a":{"dtype":"U8","shape":[4],"data_offsets":` + a + `},"b":{"dtype":"U8","shape":[4],"data_offsets":` + b + `}}`
}

func save(t testing.TB, name string, b []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

func length(n uint64, rest string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
}

// refusals are malformed files, what is wrong with them, and words the message
// must have.
var refusals = []struct {
	name string
	file []byte
	kind safetensors.ErrorKind
	msg  string
}{
	{"empty", nil, safetensors.KindHeaderLength, "the file is empty"},
	{"seven bytes", []byte("1234567"), safetensors.KindHeaderLength, "found 7 bytes, want at least 8"},
	{"length max", length(1<<64-1, "{}"), safetensors.KindHeaderLength, "found a header length of 18446744073709551615 bytes, want at most 100000000"},
	{"length one over the limit", length(100_000_001, "{}"), safetensors.KindHeaderLength, "found a header length of 100000001 bytes, want at most 100000000"},
	{"length one beyond the file", length(3, "{}"), safetensors.KindHeaderLength, "found a header length of 3 bytes, but only 2 follow"},
	{"nine random bytes", length(1<<40, "x"), safetensors.KindForeign, "begins with the bytes 00 00 00 00 00 01 00 00 78"},
	{"length 0", length(0, ""), safetensors.KindForeign, "nothing but zero bytes"},
	{"length 0 before text", length(0, "{}"), safetensors.KindHeaderStart, "want '{'"},
	{"length one short", length(1, "{}"), safetensors.KindJSON, "found the end"},
	{"space before", file(" {}", 0), safetensors.KindHeaderStart, "found ' '"},
	{"byte order mark", file("\ufeff{}", 0), safetensors.KindHeaderStart, "want '{'"},
	{"array", file("[]", 0), safetensors.KindHeaderStart, "found '['"},
	{"not UTF-8", file("{\"a\xff\":{}}", 0), safetensors.KindUTF8, "UTF-8"},
	{"no end", file(`{"a":`, 0), safetensors.KindJSON, "found the end"},
	{"text after", file(`{} x`, 0), safetensors.KindJSON, "found 'x' after the end"},
	{"NUL padding", file("{}\x00\x00", 0), safetensors.KindJSON, "after the end"},
	{"comma at the end", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},}`, 0), safetensors.KindJSON, "want a string"},
	{"half a surrogate", file(`{"a\ud800":{}}`, 0), safetensors.KindJSON, "surrogate"},
	{"control character", file("{\"a\nb\":{}}", 0), safetensors.KindJSON, "control character"},
	{"bad escape", file(`{"\x":{}}`, 0), safetensors.KindJSON, "unknown escape"},
	{"escape cut", file(`{"\u00`, 0), safetensors.KindJSON, "no end"},
	{"deep", file(`{"a":{"x":`+strings.Repeat("[", 200_000), 0), safetensors.KindJSON, "nested more than 128 deep"},
	{"null tensor", file(`{"a":null}`, 0), safetensors.KindJSON, `tensor "a"`},
	{"no dtype", file(`{"a":{"shape":[],"data_offsets":[0,1]}}`, 1), safetensors.KindJSON, `no "dtype"`},
	{"no shape", file(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1), safetensors.KindJSON, `no "shape"`},
	{"no offsets", file(`{"a":{"dtype":"U8","shape":[1]}}`, 1), safetensors.KindJSON, `no "data_offsets"`},
	{"field twice", file(`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), safetensors.KindDuplicateKey, `"dtype" is there twice`},
	{"name twice", file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\u0061":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), safetensors.KindDuplicateKey, `tensor "a": two tensors`},
	{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), safetensors.KindDuplicateKey, "__metadata__"},
	{"metadata key twice", file(`{"__metadata__":{"k":"1","k":"2"}}`, 0), safetensors.KindDuplicateKey, `"k"`},
	{"metadata number", file(`{"__metadata__":{"k":1}}`, 0), safetensors.KindMetadata, `key "k": found '1', want a string`},
	{"metadata array", file(`{"__metadata__":[]}`, 0), safetensors.KindMetadata, "want an object"},
	{"empty name", file(`{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), safetensors.KindName, "empty tensor name"},
	{"NUL in a name", file(`{"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), safetensors.KindName, "NUL"},
	{"name of 64 KiB", file(`{"`+strings.Repeat("n", 65536)+`":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), safetensors.KindName, "65536 bytes"},
	{"dtype unknown", file(one("F17", "[1]", "[0,1]"), 1), safetensors.KindDType, `tensor "a": found dtype "F17"`},
	{"dtype in lower case", file(one("f32", "[1]", "[0,4]"), 4), safetensors.KindDType, `"f32"`},
	{"dtype number", file(`{"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}}`, 1), safetensors.KindJSON, "want a string"},
	{"negative axis", file(one("U8", "[-1]", "[0,1]"), 1), safetensors.KindJSON, "found -1, want a whole number"},
	{"fractional axis", file(one("U8", "[1.0]", "[0,1]"), 1), safetensors.KindJSON, "found 1.0, want a whole number"},
	{"axis with a leading zero", file(one("U8", "[01]", "[0,1]"), 1), safetensors.KindJSON, "leading zero"},
	{"axis 2^63", file(one("U8", "[9223372036854775808]", "[0,1]"), 1), safetensors.KindShape, "want less than 2^63"},
	{"axis 2^64", file(one("U8", "[18446744073709551616]", "[0,1]"), 1), safetensors.KindShape, "want less than 2^63"},
	{"axes overflow", file(one("U8", "[4294967296,4294967296]", "[0,1]"), 1), safetensors.KindShape, "overflows"},
	{"axes overflow beside a zero", file(one("U8", "[0,4294967296,4294967296]", "[0,0]"), 0), safetensors.KindShape, "overflows"},
	{"bytes overflow", file(one("F64", "[2305843009213693952]", "[0,8]"), 8), safetensors.KindShape, "overflows"},
	{"65 axes", file(one("U8", "["+strings.Repeat("1,", 64)+"1]", "[0,1]"), 1), safetensors.KindLimit, "more than 64 axes"},
	{"odd number of F4", file(one("F4", "[3]", "[0,2]"), 2), safetensors.KindShape, "whole number of blocks"},
	{"one offset", file(one("U8", "[1]", "[0]"), 1), safetensors.KindJSON, "found 1 data_offsets, want two"},
	{"three offsets", file(one("U8", "[1]", "[0,1,2]"), 1), safetensors.KindJSON, "more than two"},
	{"offset max", file(one("U8", "[1]", "[0,18446744073709551615]"), 1), safetensors.KindOffset, "want less than 2^63"},
	{"end before begin", file(one("U8", "[1]", "[1,0]"), 1), safetensors.KindOffset, "end before they begin"},
	{"data beyond 2^63", file(one("U8", "[9223372036854775807]", "[0,9223372036854775807]"), 1), safetensors.KindOffset, "beyond 2^63"},
	{"size one short", file(one("F32", "[2]", "[0,7]"), 7), safetensors.KindSize, "found data_offsets of 7 bytes, but dtype f32 and shape [2] want 8"},
	{"hole at the start", file(one("U8", "[4]", "[1,5]"), 5), safetensors.KindOffset, "leave a hole, want them to begin at 0"},
	{"hole", file(two("[0,4]", "[5,9]"), 9), safetensors.KindOffset, `tensor "b": found data_offsets [5,9], which leave a hole, want them to begin at 4`},
	{"overlap", file(two("[0,4]", "[3,7]"), 7), safetensors.KindOffset, "overlap"},
	{"one place twice", file(two("[0,4]", "[0,4]"), 4), safetensors.KindOffset, "overlap"},
	{"trailing byte", file(one("U8", "[4]", "[0,4]"), 5), safetensors.KindTrailing, "found 1 bytes after the end of the tensor data"},
	{"trailing byte, no tensors", file("{}", 1), safetensors.KindTrailing, "found 1 bytes"},
}

func TestMalformedFilesAreRefused(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			path := save(t, "x.safetensors", c.file)
			f, err := safetensors.Open(path)
			assert.Nil(t, f)
			var fe *safetensors.FormatError
			require.ErrorAs(t, err, &fe)
			assert.Equal(t, c.kind, fe.Kind, err.Error())
			assert.ErrorContains(t, err, c.msg)
			assert.ErrorContains(t, err, path)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestWhatTheFormatAllowsIsRead(t *testing.T) {
	for _, c := range []struct {
		name  string
		file  []byte
		check func(*testing.T, *safetensors.File)
	}{
		{"nothing", file("{}", 0), func(t *testing.T, f *safetensors.File) { assert.Nil(t, f.Metadata) }},
		{"null metadata", file(`{"__metadata__":null}`, 0), func(t *testing.T, f *safetensors.File) { assert.Nil(t, f.Metadata) }},
		{"padding", file("{}      \t\r\n", 0), func(t *testing.T, f *safetensors.File) { assert.Empty(t, f.Tensors) }},
		{"fields of later versions", file(`{"a":{"new":[{"x":[1e-3,true,false,null,"\n"]}],"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
			func(t *testing.T, f *safetensors.File) { assert.Len(t, f.Tensors, 1) }},
		{"data in another order than names", file(two("[4,8]", "[0,4]"), 8), func(t *testing.T, f *safetensors.File) {
			assert.Equal(t, "b", f.Tensors[0].Name)
		}},
		{"empty tensors between", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"z":{"dtype":"F32","shape":[0,3],"data_offsets":[2,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 4),
			func(t *testing.T, f *safetensors.File) { assert.Equal(t, "z", f.Tensors[1].Name) }},
		{"odd names", file(`{"..\/\n\u202e\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), func(t *testing.T, f *safetensors.File) {
			assert.Equal(t, "../\n\u202e😀", f.Tensors[0].Name)
		}},
		{"F8 by its other name", file(one("F8_E4M3FN", "[1]", "[0,1]"), 1), func(t *testing.T, f *safetensors.File) {
			assert.Equal(t, tensor.F8E4M3, f.Tensors[0].DType)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, open(t, save(t, "m.safetensors", c.file))) })
	}
}

func TestHeadersCutAnywhereAreRefused(t *testing.T) {
	path, _ := write(t, map[string]string{"k": "v"}, tensor.Info{Name: "a", DType: tensor.F32, Shape: []int64{2, 3}})
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := range whole {
		f, err := safetensors.OpenReaderAt(bytes.NewReader(whole[:n]), int64(n), "x")
		require.Error(t, err)
		if n < len(whole)-24 {
			require.Nil(t, f, "cut to %d bytes", n)
			continue
		}
		var cut *safetensors.TruncatedError
		require.ErrorAs(t, err, &cut)
		require.NotNil(t, f)
		assert.Equal(t, &safetensors.TruncatedError{Path: "x", Tensor: "a", Need: int64(len(whole)), Have: int64(n)}, cut)
	}
}

func TestOddInputsAreRefused(t *testing.T) {
	folder := t.TempDir()
	_, err := safetensors.Open(folder)
	assert.ErrorIs(t, err, tensor.ErrNotRegular)
	_, err = safetensors.Open(filepath.Join(folder, "none.safetensors"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestAFileThatChangesIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name string
		by   int64
		msg  string
	}{{"shrinks", -100, "it shrank from"}, {"grows", 1, "it grew from"}} {
		t.Run(c.name, func(t *testing.T) {
			path, data := write(t, nil, tensor.Info{Name: "a", DType: tensor.U8, Shape: []int64{200}})
			f := open(t, path)
			require.NoError(t, os.Truncate(path, f.Size+c.by))
			var changed *tensor.ChangedError
			err := f.Check()
			require.ErrorAs(t, err, &changed)
			assert.Equal(t, path, changed.Path)
			assert.ErrorContains(t, err, c.msg)
			if c.by < 0 {
				_, err := f.Tensors[0].Source.ReadAt(make([]byte, len(data[0])), 0)
				require.ErrorAs(t, err, &changed)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}
		})
	}
}

func TestWhatCannotBeLaidOut(t *testing.T) {
	for _, c := range []struct {
		name     string
		metadata map[string]string
		infos    []tensor.Info
		kind     safetensors.ErrorKind
	}{
		{"block type", nil, []tensor.Info{{Name: "a", DType: tensor.Q8_0, Shape: []int64{32}}}, safetensors.KindDType},
		{"no type", nil, []tensor.Info{{Name: "a"}}, safetensors.KindDType},
		{"name twice", nil, []tensor.Info{{Name: "a", DType: tensor.F32}, {Name: "a", DType: tensor.F32}}, safetensors.KindDuplicateKey},
		{"reserved name", nil, []tensor.Info{{Name: "__metadata__", DType: tensor.F32}}, safetensors.KindName},
		{"empty name", nil, []tensor.Info{{DType: tensor.F32}}, safetensors.KindName},
		{"name not UTF-8", nil, []tensor.Info{{Name: "a\xff", DType: tensor.F32}}, safetensors.KindName},
		{"metadata not UTF-8", map[string]string{"a": "\xff"}, nil, safetensors.KindMetadata},
		{"negative axis", nil, []tensor.Info{{Name: "a", DType: tensor.F32, Shape: []int64{-1}}}, safetensors.KindShape},
		{"odd F4", nil, []tensor.Info{{Name: "a", DType: tensor.F4E2M1, Shape: []int64{3}}}, safetensors.KindShape},
		{"sum overflows", nil, []tensor.Info{{Name: "a", DType: tensor.U8, Shape: []int64{1 << 62}}, {Name: "b", DType: tensor.U8, Shape: []int64{1 << 62}}}, safetensors.KindShape},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := safetensors.NewLayout(c.metadata, c.infos)
			var fe *safetensors.FormatError
			require.ErrorAs(t, err, &fe)
			assert.Equal(t, c.kind, fe.Kind, err.Error())
		})
	}
}

package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// reverse reverses each run of n bytes.
func reverse(b []byte, n int) []byte {
	out := slices.Clone(b)
	for i := 0; i+n <= len(out); i += n {
		slices.Reverse(out[i : i+n])
	}
	return out
}

func TestEveryVersionAndByteOrderIsRead(t *testing.T) {
	infos := []tensor.Info{
		{Name: "f32", DType: tensor.F32, Shape: []int64{3, 5}},
		{Name: "f16", DType: tensor.F16, Shape: []int64{7}},
		{Name: "bf16", DType: tensor.BF16, Shape: []int64{2, 2, 2, 2}},
		{Name: "f64", DType: tensor.F64, Shape: []int64{2}},
		{Name: "i8", DType: tensor.I8, Shape: []int64{5}},
		{Name: "i64", DType: tensor.I64, Shape: []int64{2}},
	}
	_, data := build(t, nil, infos...)
	swapped := make([][]byte, len(data))
	for i := range data {
		swapped[i] = reverse(data[i], int(infos[i].DType.BlockBytes()))
	}
	for version := uint32(1); version <= 3; version++ {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			t.Run(strings.Join([]string{"v", string('0' + rune(version)), order.String()}, ""), func(t *testing.T) {
				big := order == binary.BigEndian
				stored := data
				if big {
					stored = swapped
				}
				f := open(t, save(t, "m.gguf", encode(order, version, everyValue(), infos, stored)))
				assert.Equal(t, int(version), f.Version)
				assert.Equal(t, big, f.BigEndian)
				assert.Equal(t, everyValue(), f.Metadata)
				require.Len(t, f.Tensors, len(infos))
				for i, x := range f.Tensors {
					assert.Equal(t, infos[i], x.Info)
					assert.Equal(t, data[i], readAll(t, x), x.Name)
				}
			})
		}
	}
}

func TestBigEndianDataIsReadFromAnyPlace(t *testing.T) {
	want := make([]byte, 5*18)
	for i := range want {
		want[i] = byte(i)
	}
	stored := slices.Clone(want)
	for i := 0; i < len(stored); i += 18 {
		stored[i], stored[i+1] = stored[i+1], stored[i]
	}
	infos := []tensor.Info{{Name: "q", DType: tensor.Q4_0, Shape: []int64{5, 32}}}
	f := open(t, save(t, "m.gguf", encode(binary.BigEndian, 3, nil, infos, [][]byte{stored})))
	src := f.Tensors[0].Source
	for off := 0; off <= len(want); off++ {
		for n := 0; n <= len(want)+3; n++ {
			p := make([]byte, n)
			got, err := src.ReadAt(p, int64(off))
			assert.Equal(t, min(n, len(want)-off), got)
			assert.Equal(t, n > len(want)-off, errors.Is(err, io.EOF))
			assert.Equal(t, want[off:off+got], p[:got])
		}
	}
	_, err := src.ReadAt(make([]byte, 1), -1)
	assert.Error(t, err)
	_, err = src.ReadAt(make([]byte, 1), 91)
	assert.Error(t, err)
}

func TestBigEndianBlocksOfUnknownOrderAreRefusedByName(t *testing.T) {
	var refused []string
	for _, info := range everyType() {
		n, err := info.Bytes()
		require.NoError(t, err)
		f, err := gguf.Open(save(t, "m.gguf", encode(binary.BigEndian, 3, everyValue(), []tensor.Info{info}, [][]byte{make([]byte, n)})))
		require.NotNil(t, f, "the header can be shown")
		assert.Equal(t, everyValue(), f.Metadata)
		assert.Equal(t, info, f.Tensors[0].Info)
		assert.NoError(t, f.Close())
		if err == nil {
			continue
		}
		var endian *gguf.EndianError
		require.ErrorAs(t, err, &endian)
		assert.Equal(t, info.DType, endian.DType)
		assert.ErrorContains(t, err, info.Name)
		refused = append(refused, info.DType.String())
	}
	assert.Equal(t, "q5_0 q5_1 q8_1 q8_K iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_xs tq1_0 tq2_0 nvfp4 q1_0 q2_0", strings.Join(refused, " "))
}

// refusals are malformed files, what is wrong with them, and words the message
// must have.
var refusals = []struct {
	name string
	file *raw
	kind gguf.ErrorKind
	msg  string
}{
	{"empty", &raw{}, gguf.KindMagic, "empty"},
	{"three bytes", &raw{b: []byte("GGU")}, gguf.KindMagic, `found "GGU" at the start, want "GGUF"`},
	{"other magic", &raw{b: []byte("GGUX\x03\x00\x00\x00")}, gguf.KindMagic, `"GGUX"`},
	{"older format", &raw{b: []byte("lmgg\x00\x00\x00\x00")}, gguf.KindMagic, "older than GGUF"},
	{"web page", &raw{b: []byte("<!DOCTYPE html><html>")}, gguf.KindMagic, "HTML"},
	{"git lfs", &raw{b: []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")}, gguf.KindMagic, "Git LFS"},
	{"magic only", &raw{b: []byte("GGUF")}, gguf.KindHeaderCut, "the version needs 4 bytes, 0 are left"},
	{"version 0", newRaw(0, 0, 0), gguf.KindVersion, "found version 0, want 1 to 3"},
	{"version 4", newRaw(4, 0, 0), gguf.KindVersion, "found version 4"},
	{"version max", newRaw(1<<32-1, 0, 0), gguf.KindVersion, "4294967295"},
	{"big-endian version 4", newRawOrder(binary.BigEndian, 4, 0, 0), gguf.KindVersion, "found version 4"},
	{"cut in the counts", &raw{b: newRaw(3, 0, 0).b[:20]}, gguf.KindHeaderCut, "the number of metadata entries needs 8 bytes, 4 are left"},
	{"one tensor too many", newRaw(3, 1, 0), gguf.KindCount, "found 1 tensors, but the 8 bytes that are left hold at most 0"},
	{"tensors max", newRaw(3, 1<<64-1, 0), gguf.KindCount, "18446744073709551615"},
	{"tensors negative", newRaw(3, 1<<63, 0), gguf.KindCount, "9223372036854775808"},
	{"keys max", newRaw(3, 0, 1<<64-1), gguf.KindCount, "metadata entries"},
	{"one key too many", newRaw(3, 0, 2).kv("a", gguf.TypeU8).bytes(0), gguf.KindCount, "found 2 metadata entries"},
	{"too many tensors", newRaw(3, 1<<17+1, 0).bytes(make([]byte, 25<<17+64)...), gguf.KindLimit, "want at most 131072"},
	{"too many keys", newRaw(3, 0, 1<<16+1).bytes(make([]byte, 14<<16+64)...), gguf.KindLimit, "want at most 65536"},

	{"empty key", newRaw(3, 0, 1).kv("", gguf.TypeU8).bytes(0, 0), gguf.KindKey, "empty metadata key"},
	{"long key", newRaw(3, 0, 1).kv(strings.Repeat("k", 65536), gguf.TypeU8).bytes(0), gguf.KindLimit, "want at most 65535"},
	{"key longer than the file", newRaw(3, 0, 1).u64(7).bytes(1, 2, 3, 4, 5, 6), gguf.KindCount, "found 7 bytes in a metadata key, but the 6"},
	{"key max", newRaw(3, 0, 1).u64(1<<64-1).bytes(1, 2, 3, 4, 5, 6), gguf.KindCount, "18446744073709551615"},
	{"key not UTF-8", newRaw(3, 0, 1).kv("a\xff", gguf.TypeU8).bytes(0), gguf.KindKey, "UTF-8"},
	{"key twice", newRaw(3, 0, 2).kv("a", gguf.TypeU8).bytes(0).kv("a", gguf.TypeU8).bytes(0), gguf.KindDuplicateKey, `metadata key "a"`},
	{"value type 13", newRaw(3, 0, 1).kv("a", 13).bytes(0), gguf.KindValue, "found value type 13, want 0 to 12"},
	{"value type max", newRaw(3, 0, 1).kv("a", 1<<32-1).bytes(0), gguf.KindValue, "4294967295"},
	{"value cut", newRaw(3, 0, 1).kv("a", gguf.TypeU64).bytes(1, 2, 3), gguf.KindHeaderCut, "a value of type u64 needs 8 bytes, 3 are left"},
	{"element type 13", newRaw(3, 0, 1).kv("a", gguf.TypeArray).u32(13).u64(0), gguf.KindValue, "found element type 13"},
	{"array one too long", newRaw(3, 0, 1).kv("a", gguf.TypeArray).u32(uint32(gguf.TypeU32)).u64(2).u32(1).bytes(0, 0, 0), gguf.KindCount, "found 2 array elements of type u32, but the 7"},
	{"strings one too many", newRaw(3, 0, 1).kv("a", gguf.TypeArray).u32(uint32(gguf.TypeString)).u64(2).str("abcdef"), gguf.KindCount, "found 2 strings"},
	{"arrays too deep", deep(6), gguf.KindLimit, "more than 4 deep"},
	{"alignment 0", newRaw(3, 0, 1).kv(gguf.KeyAlignment, gguf.TypeU32).u32(0), gguf.KindAlignment, "found alignment 0, want a power of two"},
	{"alignment 3", newRaw(3, 0, 1).kv(gguf.KeyAlignment, gguf.TypeU32).u32(3), gguf.KindAlignment, "found alignment 3"},
	{"alignment as i32", newRaw(3, 0, 1).kv(gguf.KeyAlignment, gguf.TypeI32).u32(32), gguf.KindAlignment, "found a value of type i32, want u32"},

	{"empty name", newRaw(3, 1, 0).entry("", 0, 0, 4).data(16), gguf.KindName, "empty tensor name"},
	{"name not UTF-8", newRaw(3, 1, 0).entry("a\xc0\xaf", 0, 0, 4).data(16), gguf.KindName, "UTF-8"},
	{"name with NUL", newRaw(3, 1, 0).entry("a\x00b", 0, 0, 4).data(16), gguf.KindName, "NUL"},
	{"name of 64 KiB", newRaw(3, 1, 0).entry(strings.Repeat("n", 65536), 0, 0, 4).data(16), gguf.KindLimit, "found 65536 bytes in a tensor name, want at most 65535"},
	{"name longer than the file", newRaw(3, 1, 0).u64(1 << 40).data(32), gguf.KindCount, "found 1099511627776 bytes in a tensor name"},
	{"9 axes", newRaw(3, 1, 0).entry("a", 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1).data(4), gguf.KindShape, "found 9 axes, want at most 8"},
	{"axes max", newRaw(3, 1, 0).str("a").u32(1<<32 - 1).data(64), gguf.KindShape, "found 4294967295 axes"},
	{"negative axis", newRaw(3, 1, 0).entry("a", 0, 0, 1<<64-1).data(4), gguf.KindShape, "negative axis"},
	{"overflowing axes", newRaw(3, 1, 0).entry("a", 0, 0, 1<<32, 1<<32).data(4), gguf.KindShape, "overflows"},
	{"overflowing axes beside a zero", newRaw(3, 1, 0).entry("a", 0, 0, 0, 1<<62, 1<<62).data(4), gguf.KindShape, "overflows"},
	{"overflowing bytes", newRaw(3, 1, 0).entry("a", 0, 0, 1<<62).data(4), gguf.KindShape, "overflows"},
	{"row no blocks", newRaw(3, 1, 0).entry("a", 8, 0, 48, 2).data(102), gguf.KindShape, "whole number of blocks"},
	{"type 4", newRaw(3, 1, 0).entry("a", 4, 0, 32).data(64), gguf.KindDType, "found ggml type 4"},
	{"type 31", newRaw(3, 1, 0).entry("a", 31, 0, 32).data(64), gguf.KindDType, "found ggml type 31"},
	{"type 43", newRaw(3, 1, 0).entry("a", 43, 0, 32).data(64), gguf.KindDType, "found ggml type 43"},
	{"type -1", newRaw(3, 1, 0).entry("a", 1<<32-1, 0, 32).data(64), gguf.KindDType, "found ggml type -1"},
	{"entry cut", &raw{b: newRaw(3, 1, 0).entry("abcdefgh", 0, 0, 4).b[:24+8+8+4+8+4+2]}, gguf.KindHeaderCut, "the offset needs 8 bytes, 2 are left"},
	{"offset 1", newRaw(3, 1, 0).entry("a", 0, 1, 4).data(64), gguf.KindOffset, "found data offset 1, want 0"},
	{"offset max", newRaw(3, 1, 0).entry("a", 0, 1<<64-1, 4).data(64), gguf.KindOffset, "want less than 2^63"},
	{"gap", newRaw(3, 2, 0).entry("a", 0, 0, 4).entry("b", 0, 64, 4).data(96), gguf.KindOffset, `tensor "b": found data offset 64, want 32`},
	{"overlap", newRaw(3, 2, 0).entry("a", 0, 0, 4).entry("b", 0, 0, 4).data(64), gguf.KindOffset, `tensor "b": found data offset 0, want 32`},
	{"unpadded", newRaw(3, 2, 0).entry("a", 0, 0, 4).entry("b", 0, 16, 4).data(64), gguf.KindOffset, "found data offset 16, want 32"},
	{"sum overflows", newRaw(3, 3, 0).entry("a", 24, 0, 1<<62).entry("b", 24, 1<<62, 1<<62).entry("c", 24, 1<<63-1, 1).data(64), gguf.KindOffset, "beyond 2^63"},
}

// deep is a file with arrays inside each other.
func deep(levels int) *raw {
	r := newRaw(3, 0, 1).kv("a", gguf.TypeArray)
	for range levels {
		r.u32(uint32(gguf.TypeArray)).u64(1)
	}
	return r.u32(uint32(gguf.TypeU8)).u64(1).bytes(7)
}

func TestMalformedFilesAreRefused(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			path := save(t, "x.gguf", c.file.b)
			f, err := gguf.Open(path)
			assert.Nil(t, f)
			var fe *gguf.FormatError
			require.ErrorAs(t, err, &fe)
			assert.Equal(t, c.kind, fe.Kind, err.Error())
			assert.ErrorContains(t, err, c.msg)
			assert.ErrorContains(t, err, path)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestHeadersCutAnywhereAreRefused(t *testing.T) {
	file, _ := build(t, everyValue(), everyType()...)
	dataStart := len(file)
	for _, x := range openBytes(t, file).Tensors {
		dataStart = min(dataStart, int(x.Source.(*tensor.Section).Offset))
	}
	// The data begins after padding, so a cut there is a cut of the data.
	header := bytes.LastIndexFunc(file[:dataStart], func(r rune) bool { return r != 0 }) + 1
	for n := range header {
		f, err := gguf.OpenReaderAt(bytes.NewReader(file[:n]), int64(n), "x")
		require.Nil(t, f, "cut to %d bytes", n)
		var fe *gguf.FormatError
		require.ErrorAs(t, err, &fe, "cut to %d bytes", n)
	}
}

func openBytes(t testing.TB, file []byte) *gguf.File {
	t.Helper()
	f, err := gguf.OpenReaderAt(bytes.NewReader(file), int64(len(file)), "x.gguf")
	require.NoError(t, err)
	return f
}

func TestMissingDataIsToldFromABadHeader(t *testing.T) {
	file, _ := build(t, everyValue(), everyType()...)
	last := openBytes(t, file).Tensors[len(everyType())-1]
	end := last.Source.(*tensor.Section).Offset + last.Source.Size()
	f, err := gguf.Open(save(t, "padless.gguf", file[:end]))
	require.NoError(t, err, "the padding of the last tensor may be missing, as in what stable-diffusion.cpp writes")
	require.NoError(t, f.Close())

	path := save(t, "cut.gguf", file[:end-1])
	f, err = gguf.Open(path)
	var cut *gguf.TruncatedError
	require.ErrorAs(t, err, &cut)
	assert.Equal(t, &gguf.TruncatedError{Path: path, Tensor: last.Name, Need: end, Have: end - 1}, cut)
	require.NotNil(t, f)
	assert.Equal(t, everyValue(), f.Metadata)
	assert.Len(t, f.Tensors, len(everyType()))
	_, err = f.Tensors[0].Source.ReadAt(make([]byte, 1), 0)
	assert.ErrorIs(t, err, os.ErrClosed)
	assert.NoError(t, f.Close())
}

func TestWhatGgmlAllowsIsAllowed(t *testing.T) {
	cases := []struct {
		name  string
		file  *raw
		check func(*testing.T, *gguf.File)
	}{
		{"no tensors, no keys", newRaw(3, 0, 0), func(t *testing.T, f *gguf.File) { assert.Empty(t, f.Tensors) }},
		{"no tensors, trailing bytes", newRaw(3, 0, 0).data(40), func(t *testing.T, f *gguf.File) { assert.Equal(t, int64(40), f.Trailing) }},
		{"trailing bytes", newRaw(3, 1, 0).entry("a", 0, 0, 8).data(40), func(t *testing.T, f *gguf.File) { assert.Equal(t, int64(8), f.Trailing) }},
		{"no axes", newRaw(3, 1, 0).entry("a", 0, 0).data(4), func(t *testing.T, f *gguf.File) {
			assert.Equal(t, []int64{}, f.Tensors[0].Shape)
			assert.Equal(t, int64(4), f.Tensors[0].Source.Size())
		}},
		{"five axes", newRaw(3, 1, 0).entry("a", 0, 0, 1, 2, 3, 1, 2).data(48), func(t *testing.T, f *gguf.File) {
			assert.Equal(t, []int64{2, 1, 3, 2, 1}, f.Tensors[0].Shape)
		}},
		{"an empty axis", newRaw(3, 2, 0).entry("a", 0, 0, 0, 9).entry("b", 24, 0, 1).data(1), func(t *testing.T, f *gguf.File) {
			assert.Zero(t, f.Tensors[0].Source.Size())
		}},
		{"alignment 1", newRaw(3, 2, 1).kv(gguf.KeyAlignment, gguf.TypeU32).u32(1).entry("a", 24, 0, 3).entry("b", 24, 3, 1).bytes(1, 2, 3, 4), func(t *testing.T, f *gguf.File) {
			assert.Equal(t, []byte{4}, readAll(t, f.Tensors[1]))
		}},
		{"alignment 64", newRaw(3, 1, 1).kv(gguf.KeyAlignment, gguf.TypeU32).u32(64).entry("a", 24, 0, 3).data(64), func(t *testing.T, f *gguf.File) {
			assert.Zero(t, f.Tensors[0].Source.(*tensor.Section).Offset%64)
		}},
		{"bool of 7", newRaw(3, 0, 1).kv("a", gguf.TypeBool).bytes(7), func(t *testing.T, f *gguf.File) {
			assert.Equal(t, gguf.Bool(true), f.Metadata[0].Value)
		}},
		{"odd names", newRaw(3, 1, 0).entry("../\n\u202ea", 24, 0, 1).data(1), func(t *testing.T, f *gguf.File) {
			assert.Equal(t, "../\n\u202ea", f.Tensors[0].Name)
		}},
		{"empty string", newRaw(3, 0, 1).kv("a", gguf.TypeString).str(""), func(t *testing.T, f *gguf.File) {
			assert.Equal(t, gguf.String(""), f.Metadata[0].Value)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.check(t, open(t, save(t, "m.gguf", c.file.b))) })
	}
}

func TestOddInputsAreRefused(t *testing.T) {
	folder := t.TempDir()
	_, err := gguf.Open(folder)
	assert.ErrorIs(t, err, tensor.ErrNotRegular)
	_, err = gguf.Open(filepath.Join(folder, "none.gguf"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestAFileThatChangesIsNoticed(t *testing.T) {
	file, _ := build(t, nil, tensor.Info{Name: "a", DType: tensor.F32, Shape: []int64{64}})
	for _, c := range []struct {
		name   string
		change func(path string) error
		msg    string
	}{
		{"shrinks", func(p string) error { return os.Truncate(p, 100) }, "it shrank from"},
		{"grows", func(p string) error { return os.Truncate(p, int64(len(file)+1)) }, "it grew from"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := save(t, "m.gguf", file)
			f := open(t, path)
			require.NoError(t, f.Check())
			require.NoError(t, c.change(path))
			var changed *tensor.ChangedError
			err := f.Check()
			require.ErrorAs(t, err, &changed)
			assert.Equal(t, path, changed.Path)
			assert.ErrorContains(t, err, c.msg)
			if c.name == "shrinks" {
				_, err := f.Tensors[0].Source.ReadAt(make([]byte, 256), 0)
				require.ErrorAs(t, err, &changed)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}
		})
	}
}

package gguf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// The tests here are of faults met in the field, by their numbers in the
// project's list.

func kindOf(t *testing.T, file []byte) gguf.ErrorKind {
	t.Helper()
	_, err := gguf.Open(save(t, "x.gguf", file))
	var fe *gguf.FormatError
	require.ErrorAs(t, err, &fe)
	return fe.Kind
}

func TestFault005DataShorterThanTheHeaderSays(t *testing.T) {
	_, err := gguf.Open(save(t, "x.gguf", newRaw(3, 1, 0).entry("a", 0, 0, 4).data(8).b))
	var cut *gguf.TruncatedError
	require.ErrorAs(t, err, &cut)
	assert.ErrorContains(t, err, `calls for 80 bytes, it has 72; tensor "a"`)
}

func TestFault010OffsetsAfterPaddedSizes(t *testing.T) {
	var infos []tensor.Info
	for i, n := range []int64{4, 36, 4, 100} {
		infos = append(infos, tensor.Info{Name: strings.Repeat("x", i+1), DType: tensor.I8, Shape: []int64{n}})
	}
	file, data := build(t, nil, infos...)
	f := open(t, save(t, "m.gguf", file))
	for i, x := range f.Tensors {
		assert.Equal(t, data[i], readAll(t, x))
	}
	first := f.Tensors[0].Source.(*tensor.Section).Offset
	assert.Equal(t, first+32+64+32, f.Tensors[3].Source.(*tensor.Section).Offset)
	assert.Equal(t, first+32+64+32+128, f.Size)
}

func TestFault011Alignment(t *testing.T) {
	for _, v := range []gguf.Value{gguf.U32(0), gguf.U32(3), gguf.I32(32), gguf.U64(32), gguf.String("32")} {
		r := newRaw(3, 0, 1).kv(gguf.KeyAlignment, v.Type()).value(v)
		assert.Equal(t, gguf.KindAlignment, kindOf(t, r.b))
		_, err := gguf.NewLayout(gguf.Metadata{{Key: gguf.KeyAlignment, Value: v}}, nil)
		assert.ErrorContains(t, err, gguf.KeyAlignment)
	}
}

func TestFault013LengthsAreBoundedByTheFile(t *testing.T) {
	for _, n := range []uint64{1<<64 - 1, 0x40000000} {
		r := newRaw(3, 0, 1).kv("k", gguf.TypeString).u64(n)
		assert.Equal(t, gguf.KindCount, kindOf(t, r.b))
	}
	for elem := range gguf.TypeF64 + 1 {
		r := newRaw(3, 0, 1).kv("k", gguf.TypeArray).u32(uint32(elem)).u64(1 << 40).data(64)
		assert.Equal(t, gguf.KindCount, kindOf(t, r.b), elem)
	}
	assert.Equal(t, gguf.KindShape, kindOf(t, newRaw(3, 1, 0).str("a").u32(1<<31).data(64).b))
}

func TestFault014ArraysOfArrays(t *testing.T) {
	want := gguf.Metadata{
		{Key: "nested", Value: gguf.ArrayOfArrays([]gguf.Value{gguf.U8Array([]uint8{1, 2}), gguf.U8Array([]uint8{}), gguf.U8Array([]uint8{3})})},
		{Key: "x.head_count", Value: gguf.I32Array([]int32{1, 2})},
		{Key: "after", Value: gguf.U32(7)},
	}
	r := newRaw(3, 0, 3)
	for _, kv := range want {
		r.kv(kv.Key, kv.Value.Type()).value(kv.Value)
	}
	f := open(t, save(t, "m.gguf", r.b))
	assert.Equal(t, want, f.Metadata)
	_, ok := f.Metadata.Int("x.head_count")
	assert.False(t, ok, "an array is no number")
	_, err := gguf.NewLayout(f.Metadata, nil)
	assert.ErrorContains(t, err, `metadata key "nested": found an array of arrays`)
}

func TestFault015NamesThatAreThereTwice(t *testing.T) {
	file := newRaw(3, 3, 0).entry("a", 0, 0, 4).entry("b", 0, 32, 4).entry("a", 0, 64, 4).data(96).b
	_, err := gguf.Open(save(t, "x.gguf", file))
	var fe *gguf.FormatError
	require.ErrorAs(t, err, &fe)
	assert.Equal(t, gguf.KindDuplicateTensor, fe.Kind)
	assert.Equal(t, "a", fe.Tensor)
	twice := []tensor.Info{{Name: "a", DType: tensor.F32}, {Name: "a", DType: tensor.F32}}
	_, err = gguf.NewLayout(nil, twice)
	assert.ErrorContains(t, err, `tensor "a": two tensors have this name`)
}

func TestFault016LongNamesAreNeverCut(t *testing.T) {
	names := []string{strings.Repeat("x", 63) + "a", strings.Repeat("x", 63) + "b", strings.Repeat("y", 159), "short"}
	var infos []tensor.Info
	for _, name := range names {
		infos = append(infos, tensor.Info{Name: name, DType: tensor.F32, Shape: []int64{1}})
	}
	file, _ := build(t, nil, infos...)
	for i, x := range open(t, save(t, "m.gguf", file)).Tensors {
		assert.Equal(t, names[i], x.Name)
	}
	var long *gguf.NameError
	_, err := gguf.NewLayout(nil, infos, gguf.WithNameLimit(gguf.NameLimitGGML))
	require.ErrorAs(t, err, &long)
	assert.Equal(t, names[:3], long.Names)
	assert.ErrorContains(t, err, "3 tensor names are longer than 63 bytes")
	_, err = gguf.NewLayout(nil, []tensor.Info{{Name: strings.Repeat("z", 160), DType: tensor.F32}})
	require.ErrorAs(t, err, &long)
	assert.Equal(t, 159, long.Limit)
}

func TestFault017SplitKeysGo(t *testing.T) {
	md := gguf.Metadata{{Key: gguf.KeySplitNo, Value: gguf.U16(0)}, {Key: "a", Value: gguf.U8(1)},
		{Key: gguf.KeySplitCount, Value: gguf.U16(2)}, {Key: gguf.KeySplitTensors, Value: gguf.I32(9)}}
	kept := md.Clone()
	assert.Equal(t, 3, kept.DropSplit())
	assert.Equal(t, gguf.Metadata{{Key: "a", Value: gguf.U8(1)}}, kept)
	assert.Len(t, md, 4, "the clone was changed, not the original")
}

func TestFault020NamesBeyondASCII(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "модель")
	require.NoError(t, os.Mkdir(folder, 0o700))
	path := filepath.Join(folder, "тест é.gguf")
	file, _ := build(t, nil, tensor.Info{Name: "вес.é", DType: tensor.F32, Shape: []int64{1}})
	require.NoError(t, os.WriteFile(path, file, 0o600))
	assert.Equal(t, "вес.é", open(t, path).Tensors[0].Name)
}

func TestFault039AScalarGetsAnAxis(t *testing.T) {
	l, err := gguf.NewLayout(nil, []tensor.Info{{Name: "log_scale", DType: tensor.F32}})
	require.NoError(t, err)
	file := make([]byte, l.Size)
	copy(file, l.Header)
	assert.Equal(t, []int64{1}, open(t, save(t, "m.gguf", file)).Tensors[0].Shape, "ggml writes a scalar with one axis")
}

func TestWhatCannotBeLaidOut(t *testing.T) {
	one := func(d tensor.DType, shape ...int64) []tensor.Info {
		return []tensor.Info{{Name: "a", DType: d, Shape: shape}}
	}
	for _, c := range []struct {
		name  string
		md    gguf.Metadata
		infos []tensor.Info
		kind  gguf.ErrorKind
	}{
		{"five axes", nil, one(tensor.F32, 1, 1, 1, 1, 1), gguf.KindShape},
		{"negative axis", nil, one(tensor.F32, -1), gguf.KindShape},
		{"overflow", nil, one(tensor.F32, 1<<40, 1<<40), gguf.KindShape},
		{"rows no blocks", nil, one(tensor.Q8_0, 2, 33), gguf.KindShape},
		{"type ggml has not", nil, one(tensor.F8E4M3, 4), gguf.KindDType},
		{"no type", nil, one(tensor.Invalid, 4), gguf.KindDType},
		{"empty name", nil, []tensor.Info{{DType: tensor.F32}}, gguf.KindName},
		{"NUL in a name", nil, []tensor.Info{{Name: "a\x00", DType: tensor.F32}}, gguf.KindName},
		{"empty key", gguf.Metadata{{Key: "", Value: gguf.U8(0)}}, nil, gguf.KindKey},
		{"key twice", gguf.Metadata{{Key: "a", Value: gguf.U8(0)}, {Key: "a", Value: gguf.U8(0)}}, nil, gguf.KindDuplicateKey},
		{"no value", gguf.Metadata{{Key: "a"}}, nil, gguf.KindValue},
		{"alignment 2^30", gguf.Metadata{{Key: gguf.KeyAlignment, Value: gguf.U32(1 << 30)}}, nil, gguf.KindLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := gguf.NewLayout(c.md, c.infos)
			var fe *gguf.FormatError
			require.ErrorAs(t, err, &fe)
			assert.Equal(t, c.kind, fe.Kind, err.Error())
		})
	}
	_, err := gguf.NewLayout(nil, one(tensor.F32, 1, 1, 1, 1, 1), gguf.WithAxes(5))
	assert.NoError(t, err)
}

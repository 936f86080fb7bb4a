package gguf_test

import (
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// build lays a file out and fills each tensor with bytes made from its index.
func build(t testing.TB, md gguf.Metadata, infos ...tensor.Info) (file []byte, data [][]byte) {
	t.Helper()
	l, err := gguf.NewLayout(md, infos)
	require.NoError(t, err)
	file = make([]byte, l.Size)
	copy(file, l.Header)
	for i, info := range infos {
		n, err := info.Bytes()
		require.NoError(t, err)
		b := file[l.Offsets[i] : l.Offsets[i]+n]
		r := rand.NewChaCha8([32]byte{byte(i)})
		r.Read(b)
		data = append(data, b)
	}
	return file, data
}

// save writes a file into a folder of its own.
func save(t testing.TB, name string, file []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, file, 0o600))
	return path
}

func readAll(t *testing.T, x tensor.Tensor) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(x.Source, 0, x.Source.Size()))
	require.NoError(t, err)
	return b
}

func open(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// everyValue has one value of each type and one array of each.
func everyValue() gguf.Metadata {
	return gguf.Metadata{
		{Key: "u8", Value: gguf.U8(200)}, {Key: "i8", Value: gguf.I8(-3)},
		{Key: "u16", Value: gguf.U16(60000)}, {Key: "i16", Value: gguf.I16(-300)},
		{Key: "u32", Value: gguf.U32(4e9)}, {Key: "i32", Value: gguf.I32(-7e8)},
		{Key: "u64", Value: gguf.U64(math.MaxUint64)}, {Key: "i64", Value: gguf.I64(math.MinInt64)},
		{Key: "f32", Value: gguf.F32(1.5)}, {Key: "f64", Value: gguf.F64(math.Pi)},
		{Key: "bool", Value: gguf.Bool(true)}, {Key: "string", Value: gguf.String("é\x00\xff")},
		{Key: "u8s", Value: gguf.U8Array([]uint8{1, 2})}, {Key: "i8s", Value: gguf.I8Array([]int8{-1, 2})},
		{Key: "u16s", Value: gguf.U16Array([]uint16{1, 500})}, {Key: "i16s", Value: gguf.I16Array([]int16{-1})},
		{Key: "u32s", Value: gguf.U32Array([]uint32{1 << 31})}, {Key: "i32s", Value: gguf.I32Array([]int32{-1, 9})},
		{Key: "u64s", Value: gguf.U64Array([]uint64{1 << 63})}, {Key: "i64s", Value: gguf.I64Array([]int64{-1})},
		{Key: "f32s", Value: gguf.F32Array([]float32{0.5, -1})}, {Key: "f64s", Value: gguf.F64Array([]float64{2})},
		{Key: "bools", Value: gguf.BoolArray([]bool{true, false})},
		{Key: "strings", Value: gguf.StringArray([]string{"", "a", "длинно"})},
		{Key: "none", Value: gguf.I32Array([]int32{})},
	}
}

func everyType() (infos []tensor.Info) {
	for _, d := range tensor.All() {
		if _, ok := d.GGML(); ok {
			infos = append(infos, tensor.Info{Name: "t." + d.String(), DType: d, Shape: []int64{3, 256}})
		}
	}
	return infos
}

func TestWhatIsLaidOutIsRead(t *testing.T) {
	infos := append(everyType(),
		tensor.Info{Name: "empty", DType: tensor.F32, Shape: []int64{0, 4}},
		tensor.Info{Name: "leading ones", DType: tensor.F32, Shape: []int64{1, 1, 3}},
		tensor.Info{Name: "four\n", DType: tensor.I8, Shape: []int64{2, 3, 1, 5}})
	file, data := build(t, everyValue(), infos...)
	f := open(t, save(t, "m.gguf", file))
	assert.Equal(t, 3, f.Version)
	assert.False(t, f.BigEndian)
	assert.Equal(t, int64(32), f.Alignment)
	assert.Equal(t, everyValue(), f.Metadata)
	assert.Zero(t, f.Trailing)
	require.Len(t, f.Tensors, len(infos))
	for i, x := range f.Tensors {
		assert.Equal(t, infos[i], x.Info)
		assert.Equal(t, data[i], readAll(t, x), x.Name)
	}
	assert.NoError(t, f.Check())
}

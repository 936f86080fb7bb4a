package graph

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/tensor"
)

func device(t *testing.T) *Device {
	t.Helper()
	d, err := OpenDevice(nativetest.Library(t), "", 1)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// stored returns a tensor with the given bytes.
func stored(name string, d tensor.DType, data []byte, shape ...int64) tensor.Tensor {
	return tensor.Tensor{Info: tensor.Info{Name: name, DType: d, Shape: shape}, Source: bytes.NewReader(data)}
}

func floats(x ...float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// computed is a FloatSource of one value.
type computed struct {
	*bytes.Reader
	v float32
}

func (c computed) ReadFloats(dst []float32, _ int64) error {
	for i := range dst {
		dst[i] = c.v
	}
	return nil
}

const long = "a.module.path.that.is.longer.than.the.sixty.three.bytes.which.ggml.keeps.of.a.name"

// product compiles x·wᵀ + b for a weight of two rows of 32 columns.
func product(d *Device, w *Weights) (*Program, error) {
	return d.Compile("product", w, Options{}, func(b Builder) Tensor {
		b = b.In(long)
		x := b.Input(tensor.F32, 1, 32)
		return b.Add(b.MatMul(x, b.Weight("weight", Matrix, -1, 32)), b.Weight("bias", Vector, 2))
	})
}

func TestWeightsOfAnyType(t *testing.T) {
	lib := nativetest.Library(t)
	values := make([]float32, 64)
	for i := range values {
		values[i] = float32(i%5) / 4 // exact in every type but the coarsest
	}
	f16, bf16, q8 := make([]byte, 128), make([]byte, 128), make([]byte, 68)
	for d, dst := range map[tensor.DType][]byte{tensor.F16: f16, tensor.BF16: bf16, tensor.Q8_0: q8} {
		_, err := lib.QuantizeChunk(d, values, dst, 2, 32, nil)
		require.NoError(t, err)
	}
	f64, f8 := make([]byte, 0, 512), make([]byte, 64)
	e4m3 := map[float32]byte{0: 0, 0.25: 0x28, 0.5: 0x30, 0.75: 0x34, 1: 0x38}
	for i, v := range values {
		f64 = binary.LittleEndian.AppendUint64(f64, math.Float64bits(float64(v)))
		f8[i] = e4m3[v]
	}
	for d, data := range map[tensor.DType][]byte{
		tensor.F32: floats(values...), tensor.F16: f16, tensor.BF16: bf16, tensor.Q8_0: q8, tensor.F64: f64, tensor.F8E4M3: f8,
	} {
		t.Run(d.String(), func(t *testing.T) {
			dev := device(t)
			w, err := NewWeights(dev, []tensor.Tensor{
				stored(long+".weight", d, data, 2, 32), stored(long+".bias", tensor.F32, floats(10, 20), 2), stored("unused", tensor.U8, nil, 7),
			})
			require.NoError(t, err)
			defer w.Close()
			p, err := product(dev, w)
			require.NoError(t, err)
			defer p.Close()
			var mu sync.Mutex
			var done, total int64
			require.NoError(t, w.Load(context.Background(), func(a, b int64) {
				mu.Lock()
				defer mu.Unlock()
				done, total = max(done, a), b
			}))
			assert.Equal(t, total, done)
			assert.Equal(t, int64(len(data)+8), total, "what nobody asked for is not read")
			x := make([]float32, 32)
			x[3], x[4] = 2, 4
			out, err := p.Run(context.Background(), Floats(x))
			require.NoError(t, err)
			// Row 0 has 0.75 and 1 there, row 1 (of elements 35 and 36) 0 and 0.25.
			assert.InDeltaSlice(t, []float32{10 + 1.5 + 4, 20 + 0 + 1}, out, 0.02)
			assert.Equal(t, long+".weight", w.Asked(Matrix)[0].Name)
			_, err = p.Run(context.Background(), Floats(x[:5]))
			assert.Error(t, err)
			assert.Error(t, w.Load(context.Background(), nil), "once only")
		})
	}
}

func TestComputedWeightsAreHalved(t *testing.T) {
	dev := device(t)
	src := computed{bytes.NewReader(make([]byte, 256)), 0.5}
	w, err := NewWeights(dev, []tensor.Tensor{
		{Info: tensor.Info{Name: long + ".weight", DType: tensor.F32, Shape: []int64{2, 32}}, Source: src},
		stored(long+".bias", tensor.F32, floats(0, 0), 2),
	})
	require.NoError(t, err)
	defer w.Close()
	p, err := product(dev, w)
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, w.Load(context.Background(), nil))
	assert.Equal(t, int64(2*64+8), w.Bytes(), "f16, as the source was less precise")
	x := make([]float32, 32)
	x[0] = 3
	out, err := p.Run(context.Background(), Floats(x))
	require.NoError(t, err)
	assert.Equal(t, []float32{1.5, 1.5}, out)
}

func TestWeightsThatDoNotFit(t *testing.T) {
	dev := device(t)
	for name, c := range map[string]struct {
		tensors []tensor.Tensor
		want    string
	}{
		"missing": {nil, `"` + long + `.weight" is missing`},
		"narrow":  {[]tensor.Tensor{stored(long+".weight", tensor.F32, nil, 2, 31)}, "has shape [2,31], expected [-1,32]"},
		"rank":    {[]tensor.Tensor{stored(long+".weight", tensor.F32, nil, 3, 2, 32)}, "has shape [3,2,32]"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewWeights(dev, c.tensors)
			require.NoError(t, err)
			defer w.Close()
			_, err = product(dev, w)
			assert.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, "build product")
		})
	}
	_, err := NewWeights(dev, []tensor.Tensor{stored("a", tensor.F32, nil, 1), stored("a", tensor.F32, nil, 1)})
	assert.ErrorContains(t, err, "occurs twice")
}

func TestShortFileWhileLoading(t *testing.T) {
	dev := device(t)
	weight := stored(long+".weight", tensor.F32, nil, 2, 32)
	weight.Source = io.NewSectionReader(strings.NewReader("short"), 0, 256)
	w, err := NewWeights(dev, []tensor.Tensor{weight, stored(long+".bias", tensor.F32, floats(0, 0), 2)})
	require.NoError(t, err)
	defer w.Close()
	p, err := product(dev, w)
	require.NoError(t, err)
	defer p.Close()
	err = w.Load(context.Background(), nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.ErrorContains(t, err, long)
}

func TestNaNIsBlamedOnItsModule(t *testing.T) {
	dev := device(t)
	w, err := NewWeights(dev, nil)
	require.NoError(t, err)
	defer w.Close()
	p, err := dev.Compile("p", w, Options{}, func(b Builder) Tensor {
		x := b.Input(tensor.F32, 1, 4)
		y := b.In("first").SiLU(x)
		y = b.In("second").Mul(y, y)
		return b.In("third").SiLU(y)
	})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Run(context.Background(), Floats([]float32{1, 2, 3, 1e30}))
	var bad *NonFiniteError
	require.True(t, errors.As(err, &bad), "%v", err)
	assert.Equal(t, "second", bad.Layer)
	out, err := p.Run(context.Background(), Floats([]float32{1, 2, 3, 4}))
	require.NoError(t, err, "it runs again")
	assert.Len(t, out, 4)
}

func TestCancelledRun(t *testing.T) {
	dev := device(t)
	w, err := NewWeights(dev, nil)
	require.NoError(t, err)
	defer w.Close()
	p, err := dev.Compile("p", w, Options{}, func(b Builder) Tensor { return b.SiLU(b.Input(tensor.F32, 1, 4)) })
	require.NoError(t, err)
	defer p.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = p.Run(ctx, Floats(make([]float32, 4)))
	assert.ErrorIs(t, err, context.Canceled)
	_, err = p.Run(context.Background(), Floats(make([]float32, 4)))
	assert.NoError(t, err)
}

func TestShapesAndPermutations(t *testing.T) {
	dev := device(t)
	w, err := NewWeights(dev, nil)
	require.NoError(t, err)
	defer w.Close()
	p, err := dev.Compile("p", w, Options{}, func(b Builder) Tensor {
		x := b.Input(tensor.F32, 2, 3, 4)
		y := b.Permute(x, 2, 0, 1)
		assert.Equal(t, []int64{4, 2, 3}, y.Shape())
		assert.Equal(t, []int64{3, 2, 0}, []int64{y.Dim(-1), y.Dim(1), y.Dim(7)})
		return b.Cont(y)
	})
	require.NoError(t, err)
	defer p.Close()
	x := make([]float32, 24)
	for i := range x {
		x[i] = float32(i)
	}
	out, err := p.Run(context.Background(), Floats(x))
	require.NoError(t, err)
	for i := range 4 {
		for j := range 2 {
			for k := range 3 {
				assert.Equal(t, x[j*12+k*4+i], out[i*6+j*3+k])
			}
		}
	}
	_, err = dev.Compile("p", w, Options{}, func(b Builder) Tensor { return b.Permute(b.Input(tensor.F32, 2, 3), 0, 2) })
	assert.Error(t, err)
	_, err = OpenDevice(dev.Lib, "NoSuch0", 1)
	assert.ErrorIs(t, err, native.ErrNoDevice)
}

// Mapped weights give the same numbers, after their file is closed too; what has to
// be converted is read as ever.
func TestMappedWeights(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "weights")
	raw := append(make([]byte, 6), floats(append(make([]float32, 60), 1, 2, 3, 4)...)...) // begins at an odd place for f32
	raw = append(raw, make([]byte, 2)...)
	at := int64(len(raw))
	raw = append(raw, floats(append(make([]float32, 60), 1, 2, 3, 4)...)...)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	run := func(mapped bool) (out []float32, inPlace int64) {
		f, err := os.Open(path)
		require.NoError(t, err)
		section := func(name string, offset int64) tensor.Tensor {
			return tensor.Tensor{Info: tensor.Info{Name: name, DType: tensor.F32, Shape: []int64{2, 32}}, Source: &tensor.Section{File: f, Path: path, Offset: offset, Length: 256}}
		}
		d := device(t)
		w, err := NewWeights(d, []tensor.Tensor{section("odd", 6), section("even", at), stored("computed", tensor.F16, make([]byte, 128), 2, 32)})
		require.NoError(t, err)
		defer w.Close()
		if mapped {
			w.MapFiles()
		}
		p, err := d.Compile("sum", w, Options{}, func(b Builder) Tensor {
			x := b.Input(tensor.F32, 1, 32)
			y := b.Add(b.MatMul(x, b.Weight("odd", Matrix, 2, 32)), b.MatMul(x, b.Weight("even", Matrix, 2, 32)))
			return b.Add(y, b.MatMul(x, b.Weight("computed", Matrix, 2, 32)))
		})
		require.NoError(t, err)
		defer p.Close()
		require.NoError(t, w.Load(context.Background(), nil))
		require.NoError(t, f.Close())
		x := make([]float32, 32)
		for i := range x {
			x[i] = float32(i)
		}
		out, err = p.Run(context.Background(), Floats(x))
		require.NoError(t, err)
		return out, w.Mapped()
	}
	want, none := run(false)
	got, some := run(true)
	require.Equal(t, want, got)
	require.Zero(t, none)
	if canMap {
		require.EqualValues(t, 256, some, "the one that begins at a multiple of 4")
	}
	require.NotZero(t, got[1])
}

func TestMappedFileThatIsTooShort(t *testing.T) {
	if !canMap {
		t.Skip("this system does not map files")
	}
	path := filepath.Join(t.TempDir(), "weights")
	require.NoError(t, os.WriteFile(path, make([]byte, 100), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	d := device(t)
	w, err := NewWeights(d, []tensor.Tensor{{Info: tensor.Info{Name: "w", DType: tensor.F32, Shape: []int64{2, 32}}, Source: &tensor.Section{File: f, Path: path, Length: 256}}})
	require.NoError(t, err)
	defer w.Close()
	w.MapFiles()
	p, err := d.Compile("x", w, Options{}, func(b Builder) Tensor { return b.MatMul(b.Input(tensor.F32, 1, 32), b.Weight("w", Matrix, 2, 32)) })
	require.NoError(t, err)
	defer p.Close()
	require.ErrorContains(t, w.Load(context.Background(), nil), "it has 100 bytes, its tensors end at 256")
}

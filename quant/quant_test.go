package quant_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

func encode(t *testing.T, d tensor.DType, src []float32, w []float32) ([]byte, quant.Stats) {
	t.Helper()
	dst := make([]byte, int64(len(src))/d.Block()*d.BlockBytes())
	stats, err := quant.Lookup(d).Quantize(dst, src, 1, int64(len(src)), w)
	require.NoError(t, err)
	return dst, stats
}

func decode(t *testing.T, d tensor.DType, raw []byte) []float32 {
	t.Helper()
	out := make([]float32, int64(len(raw))/d.BlockBytes()*d.Block())
	require.NoError(t, quant.Lookup(d).Dequantize(out, raw))
	return out
}

func TestF16AndBF16AreExactForEveryCode(t *testing.T) {
	for h := range 1 << 16 {
		raw := []byte{byte(h), byte(h >> 8)}
		for _, d := range []tensor.DType{tensor.F16, tensor.BF16} {
			v := decode(t, d, raw)
			if v[0] != v[0] {
				continue
			}
			back, _ := encode(t, d, v, nil)
			require.Equal(t, raw, back, "%s %04x", d, h)
		}
	}
}

func TestF8EveryCode(t *testing.T) {
	for _, d := range []tensor.DType{tensor.F8E4M3, tensor.F8E5M2} {
		for c := range 256 {
			v := decode(t, d, []byte{byte(c)})
			if v[0] != v[0] {
				continue
			}
			back, _ := encode(t, d, v, nil)
			require.Equal(t, []byte{byte(c)}, back, "%s %02x", d, c)
		}
	}
	for _, tt := range []struct {
		d    tensor.DType
		in   float32
		want byte
	}{
		{tensor.F8E4M3, 448, 0x7e}, {tensor.F8E4M3, 460, 0x7e}, {tensor.F8E4M3, -1e9, 0xfe}, {tensor.F8E4M3, 1, 0x38},
		{tensor.F8E4M3, 1.0625, 0x38}, {tensor.F8E4M3, 1.1875, 0x3a}, {tensor.F8E4M3, 0x1p-9, 0x01}, {tensor.F8E4M3, 0x1p-10, 0x00},
		{tensor.F8E4M3, 0x1.8p-9, 0x02}, {tensor.F8E4M3, 0x1.fp-7, 0x08}, {tensor.F8E5M2, 57344, 0x7b}, {tensor.F8E5M2, 61440, 0x7c},
		{tensor.F8E5M2, 61439, 0x7b}, {tensor.F8E5M2, 0x1p-16, 0x01}, {tensor.F8E5M2, 1e-30, 0x00}, {tensor.F8E5M2, -2, 0xc0},
	} {
		got, _ := encode(t, tt.d, []float32{tt.in}, nil)
		require.Equal(t, []byte{tt.want}, got, "%s %v", tt.d, tt.in)
	}
}

func TestFault031BF16RoundsToNearestEvenAndKeepsNaN(t *testing.T) {
	for in, want := range map[uint32]uint16{0x3F818000: 0x3F82, 0x3F808000: 0x3F80, 0x7F800001: 0x7FC0, 0x7FFFFFFF: 0x7FFF, 0xFFFFFFFF: 0xFFFF} {
		got, _ := encode(t, tensor.BF16, []float32{math.Float32frombits(in)}, nil)
		require.Equal(t, []byte{byte(want), byte(want >> 8)}, got, "%08x", in)
	}
}

func TestFault032OverflowsAreCounted(t *testing.T) {
	_, stats := encode(t, tensor.F16, []float32{70000, 1, -1e9, 65519}, nil)
	require.Equal(t, int64(2), stats.Overflow)
	row := make([]float32, 32)
	row[3] = 6e5
	_, stats = encode(t, tensor.Q4_0, row, nil)
	require.Equal(t, int64(1), stats.Overflow)
	row[3] = 1e7
	_, stats = encode(t, tensor.Q8_0, row, nil)
	require.Equal(t, int64(1), stats.Overflow)
	row[3] = 1e5
	_, stats = encode(t, tensor.Q8_0, row, nil)
	require.Zero(t, stats.Overflow)
}

func TestNonFiniteInputIsRefusedBeforeWriting(t *testing.T) {
	for _, d := range quantized()[2:] {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			cols := d.Block()
			src := make([]float32, 3*cols)
			src[cols+7] = bad
			dst := make([]byte, 3*d.BlockBytes())
			w := modes["ones"](nil, cols)
			_, err := quant.Lookup(d).Quantize(dst, src, 3, cols, w)
			var nf *quant.NonFiniteError
			require.ErrorAs(t, err, &nf, d)
			require.Equal(t, [2]int64{1, 7}, [2]int64{nf.Row, nf.Col})
			require.Equal(t, make([]byte, len(dst)), dst)
		}
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	c := quant.Lookup(tensor.Q4_K)
	src, dst := make([]float32, 256), make([]byte, 144)
	_, err := c.Quantize(dst, src, 1, 255, nil)
	require.ErrorIs(t, err, tensor.ErrBlock)
	_, err = c.Quantize(dst[:143], src, 1, 256, nil)
	require.Error(t, err)
	_, err = c.Quantize(dst, src, 1, 256, make([]float32, 255))
	require.Error(t, err)
	w := make([]float32, 256)
	for _, bad := range []float32{-1, float32(math.NaN()), float32(math.Inf(1))} {
		w[9] = bad
		_, err = c.Quantize(dst, src, 1, 256, w)
		var we *quant.WeightError
		require.ErrorAs(t, err, &we)
		require.Equal(t, int64(9), we.Col)
	}
	_, err = quant.Lookup(tensor.I32).Quantize(dst, src, 1, 256, nil)
	require.ErrorIs(t, err, quant.ErrUnsupported)
	require.ErrorIs(t, quant.Lookup(tensor.C64).Dequantize(src, dst), quant.ErrUnsupported)
	require.Error(t, c.Dequantize(src, dst[:10]))
}

func TestFault055ZeroWeightsNeverGiveNaN(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, d := range quantized()[2:] {
		c := quant.Lookup(d)
		if !c.UsesWeights {
			continue
		}
		for name, weights := range map[string]func(i int) float32{
			"zero in 0-31": func(i int) float32 {
				if i < 32 {
					return 0
				}
				return 1
			},
			"all zero": func(int) float32 { return 0 },
			"all tiny": func(int) float32 { return 1e-20 },
			"ones":     func(int) float32 { return 1 },
		} {
			for _, scale := range []float64{1, 1e-20, 0} {
				src, w := make([]float32, 256), make([]float32, 256)
				for i := range src {
					src[i], w[i] = float32(scale*rng.NormFloat64()), weights(i)
				}
				raw, stats := encode(t, d, src, w)
				var worst float64
				for i, v := range decode(t, d, raw) {
					require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0), "%s, %s: element %d is %v", d, name, i, v)
					worst = max(worst, math.Abs(float64(v-src[i])))
				}
				require.LessOrEqual(t, worst, 5*scale, "%s, %s, %g", d, name, scale)
				if name != "ones" {
					require.Positive(t, stats.Fallback, "%s, %s", d, name)
				} else {
					require.Zero(t, stats.Fallback)
				}
			}
		}
	}
}

// Equal weights are the same as ones, for all blocks or for some.
func TestFallbackEqualsOnes(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 3))
	for _, d := range quantized() {
		c := quant.Lookup(d)
		if !c.UsesWeights {
			continue
		}
		src := make([]float32, 512)
		inputs["laplace"](rng, src)
		want, _ := encode(t, d, src, modes["ones"](rng, 512))
		got, stats := encode(t, d, src, make([]float32, 512))
		require.Equal(t, want, got, d)
		require.Equal(t, 512/d.Block(), stats.Fallback, d)
	}
}

// What a column range without importance costs: ggml stores scales of zero for it
// or searches blindly, the default policy does not.
func TestFault055ErrorBeforeAndAfter(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	src, w := make([]float32, 4096), make([]float32, 4096)
	each(src, func(int) float64 { return rng.NormFloat64() })
	each(w, func(i int) float64 { return float64(min(1, i%256/32)) })
	for d, want := range map[tensor.DType][2]float64{ // error over the first 32 columns
		tensor.Q4_0: {1, 0.10}, tensor.Q3_K: {1, 0.16}, tensor.Q6_K: {1, 0.02}, tensor.IQ4_NL: {1, 0.08},
		tensor.IQ4_XS: {1, 0.08}, tensor.IQ2_XXS: {0.95, 0.36}, tensor.IQ1_S: {0.95, 0.55}, tensor.IQ3_XXS: {0.85, 0.2},
	} {
		c := quant.Lookup(d)
		exact := make([]byte, 4096/d.Block()*d.BlockBytes())
		_, err := c.QuantizeExact(exact, src, 1, 4096, w)
		require.NoError(t, err)
		safe, _ := encode(t, d, src, w)
		judge := func(raw []byte) float64 {
			y := decode(t, d, raw)
			return relativeError(src[:32], y[:32], nil)
		}
		require.GreaterOrEqual(t, judge(exact), want[0]*0.99, d)
		require.LessOrEqual(t, judge(safe), want[1], d)
	}
}

// ggml's iq3_s loses its place after an all-zero sub-block: the default policy does not.
func TestIQ3SKeepsItsPlaceAfterZeros(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	src := make([]float32, 256)
	for i := range src {
		if i/32 != 2 {
			src[i] = float32(rng.NormFloat64())
		}
	}
	c := quant.Lookup(tensor.IQ3_S)
	exact, safe := make([]byte, 110), make([]byte, 110)
	_, err := c.QuantizeExact(exact, src, 1, 256, modes["ones"](nil, 256))
	require.NoError(t, err)
	_, err = c.Quantize(safe, src, 1, 256, modes["ones"](nil, 256))
	require.NoError(t, err)
	relative := func(raw []byte) float64 {
		var e, n float64
		for i, v := range decode(t, tensor.IQ3_S, raw) {
			e += math.Pow(float64(v-src[i]), 2)
			n += math.Pow(float64(src[i]), 2)
		}
		return math.Sqrt(e / n)
	}
	require.Greater(t, relative(exact), 1.0)
	require.Less(t, relative(safe), 0.15)
}

func TestFault061TypesThatIgnoreWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, d := range quantized() {
		if quant.Lookup(d).UsesWeights {
			continue
		}
		src := make([]float32, 256)
		inputs["normal"](rng, src)
		with, _ := encode(t, d, src, modes["imatrix"](rng, 256))
		without, _ := encode(t, d, src, nil)
		require.Equal(t, without, with, d)
	}
}

func TestFault062TypesThatNeedWeights(t *testing.T) {
	src := make([]float32, 256)
	dst := make([]byte, 1024)
	for d, needs := range map[tensor.DType]bool{tensor.IQ2_XXS: true, tensor.IQ2_XS: true, tensor.IQ1_S: true, tensor.IQ4_NL: false, tensor.IQ3_S: false, tensor.IQ1_M: false} {
		_, err := quant.Lookup(d).Quantize(dst, src, 1, 256, nil)
		if needs {
			require.ErrorIs(t, err, quant.ErrNeedsWeights, d)
		} else {
			require.NoError(t, err, d)
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	const rows, cols = 4, 4096
	src := make([]float32, rows*cols)
	inputs["normal"](rng, src)
	for _, d := range quantized() {
		for _, mode := range []string{"none", "imatrix"} {
			c := quant.Lookup(d)
			w := modes[mode](rng, cols)
			if w == nil && c.NeedsWeights || w != nil && !c.UsesWeights {
				continue
			}
			dst := make([]byte, rows*cols/d.Block()*d.BlockBytes())
			b.Run(d.String()+"/"+mode, func(b *testing.B) {
				b.SetBytes(rows * cols) // elements, so that MB/s reads as Mel/s
				for range b.N {
					if _, err := c.Quantize(dst, src, rows, cols, w); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkDequantize(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 16384
	src, out := make([]float32, n), make([]float32, n)
	inputs["normal"](rng, src)
	for _, d := range quantized() {
		c := quant.Lookup(d)
		dst := make([]byte, n/d.Block()*d.BlockBytes())
		if _, err := c.Quantize(dst, src, 1, n, modes["ones"](rng, n)); err != nil {
			b.Fatal(err)
		}
		b.Run(d.String(), func(b *testing.B) {
			b.SetBytes(n)
			for range b.N {
				if err := c.Dequantize(out, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

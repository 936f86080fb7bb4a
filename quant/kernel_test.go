package quant_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// guarded returns n bytes that begin at the given offset from an aligned
// address, between guards, and a function that checks those.
func guarded(n, offset int) ([]byte, func() bool) {
	const guard = 64
	all := bytes.Repeat([]byte{0xa5}, offset+n+2*guard)
	front, back := all[:guard+offset], all[guard+offset+n:]
	fine := func() bool {
		return bytes.Count(front, []byte{0xa5}) == len(front) && bytes.Count(back, []byte{0xa5}) == len(back)
	}
	return all[guard+offset : guard+offset+n : guard+offset+n], fine
}

// guardedFloats is the same for numbers; the guards are NaN, which no sum
// survives.
func guardedFloats(n, offset int) []float32 {
	all := make([]float32, n+offset+32)
	each(all, func(int) float64 { return math.NaN() })
	return all[16+offset : 16+offset+n : 16+offset+n]
}

// Every kernel writes what the Go code writes, and nothing else, at every number
// of rows and blocks and every alignment.
func TestKernelsEqualGoCode(t *testing.T) {
	if quant.DetectCPU() == quant.Generic {
		t.Skip("this machine or build has no kernels")
	}
	defer func() { require.NoError(t, quant.UseCPU(quant.DetectCPU())) }()
	for _, d := range tensor.All() {
		c := quant.Lookup(d)
		if !c.CanQuantize {
			continue
		}
		rng := rand.New(rand.NewPCG(7, uint64(d)))
		for _, mode := range []string{"none", "ones", "imatrix", "some zero"} {
			if mode == "none" && c.NeedsWeights || mode != "none" && !c.UsesWeights {
				continue
			}
			for _, shape := range [][2]int64{{1, 1}, {1, 2}, {1, 3}, {2, 1}, {3, 3}, {5, 1}, {7, 2}, {1, 8}, {8, 1}, {9, 1}, {1, 16}, {17, 1}, {1, 17}, {3, 11}, {33, 1}} {
				kernelsEqual(t, c, mode, shape[0], shape[1]*max(d.Block(), 1), rng)
			}
			if d.Block() == 1 {
				for cols := range int64(70) {
					kernelsEqual(t, c, mode, 1, cols, rng)
				}
			}
		}
	}
}

func kernelsEqual(t *testing.T, c *quant.Codec, mode string, rows, cols int64, rng *rand.Rand) {
	t.Helper()
	offset := rng.IntN(8)
	src := guardedFloats(int(rows*cols), offset)
	inputs[[]string{"normal", "mixed scales", "zero blocks", "heavy tail"}[rng.IntN(4)]](rng, src)
	w := modes[mode](rng, cols)
	if w != nil {
		w = append(guardedFloats(int(cols), offset)[:0], w...)
	}
	size := int(rows * cols / c.DType.Block() * c.DType.BlockBytes())
	var want []byte
	var decoded []float32
	for cpu := quant.Generic; cpu <= quant.DetectCPU(); cpu++ {
		require.NoError(t, quant.UseCPU(cpu))
		for _, exact := range []bool{true, false} {
			dst, fine := guarded(size, rng.IntN(32))
			var err error
			if exact {
				_, err = c.QuantizeExact(dst, src, rows, cols, w)
			} else {
				_, err = c.Quantize(dst, src, rows, cols, w)
			}
			require.NoError(t, err)
			require.True(t, fine(), "%s, %s on %s wrote beyond its %d rows of %d", c.DType, mode, cpu, rows, cols)
			if !exact {
				continue
			}
			if cpu == quant.Generic {
				want = dst
			}
			require.True(t, bytes.Equal(want, dst), "%s, %s on %s: other bytes for %d rows of %d", c.DType, mode, cpu, rows, cols)
		}
		out := guardedFloats(int(rows*cols), rng.IntN(8))
		require.NoError(t, c.Dequantize(out, want))
		if cpu == quant.Generic {
			decoded = out
		}
		for i := range out {
			if math.Float32bits(out[i]) != math.Float32bits(decoded[i]) {
				t.Fatalf("%s on %s: element %d of %d decodes to %v, want %v", c.DType, cpu, i, len(out), out[i], decoded[i])
			}
		}
	}
}

func TestParseCPU(t *testing.T) {
	for _, c := range []quant.CPU{quant.Generic, quant.AVX2, quant.AVX512} {
		got, err := quant.ParseCPU(c.String())
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	best, err := quant.ParseCPU("")
	require.NoError(t, err)
	require.Equal(t, quant.DetectCPU(), best)
	_, err = quant.ParseCPU("mmx")
	require.ErrorContains(t, err, "mmx")
	require.Error(t, quant.UseCPU(quant.AVX512+1))
}

// A row cut in parts gives the bytes of the whole.
func TestRowInParts(t *testing.T) {
	for _, d := range quantized() {
		c := quant.Lookup(d)
		cols := 6 * d.Block()
		rng := rand.New(rand.NewPCG(9, 9))
		src := make([]float32, cols)
		inputs["heavy tail"](rng, src)
		w := modes["imatrix"](rng, cols)
		want := make([]byte, 6*d.BlockBytes())
		_, err := c.QuantizeExact(want, src, 1, cols, w)
		require.NoError(t, err)
		cut := 2 * d.Block()
		sum := quant.RowSum(quant.RowSum(0, src[:cut]), src[cut:])
		got := make([]byte, len(want))
		_, err = c.QuantizePart(got, src[:cut], w[:cut], cols, sum, true)
		require.NoError(t, err)
		_, err = c.QuantizePart(got[2*d.BlockBytes():], src[cut:], w[cut:], cols, sum, true)
		require.NoError(t, err)
		require.Equal(t, want, got, d)
	}
}

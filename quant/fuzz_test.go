package quant_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// floatsOf repeats raw's bytes as float32 bit patterns, beginning at skip.
func floatsOf(raw []byte, n int64, skip int) []float32 {
	x := make([]float32, n)
	if len(raw) == 0 {
		return x
	}
	for i := range x {
		bits := uint32(0)
		for k := range 4 {
			bits |= uint32(raw[(skip+4*i+k)%len(raw)]) << (8 * k)
		}
		x[i] = math.Float32frombits(bits)
	}
	return x
}

// Whatever the numbers and weights are, there is a block that decodes or an error
// of a known kind, and every set of kernels agrees.
func FuzzQuantize(f *testing.F) {
	types := quantized()
	f.Add(byte(9), byte(1), []byte{0xff, 0xff, 0x7f, 0x7f, 0, 0, 0x80, 0xff, 1, 0, 0, 0})
	f.Add(byte(17), byte(2), []byte("numbers of ordinary size, weights too"))
	f.Fuzz(func(t *testing.T, kind, mode byte, raw []byte) {
		d := types[int(kind)%len(types)]
		c := quant.Lookup(d)
		cols := max(d.Block(), 256)
		src := floatsOf(raw, 2*cols, 0)
		var w []float32
		if mode%3 == 1 {
			w = modes["ones"](nil, cols)
		} else if mode%3 == 2 {
			w = floatsOf(raw, cols, 1)
		}
		var want []byte
		for cpu := quant.Generic; cpu <= quant.DetectCPU(); cpu++ {
			require.NoError(t, quant.UseCPU(cpu))
			dst := make([]byte, 2*cols/d.Block()*d.BlockBytes())
			_, err := c.Quantize(dst, src, 2, cols, w)
			var nonFinite *quant.NonFiniteError
			var weight *quant.WeightError
			switch {
			case err == nil:
			case errors.As(err, &nonFinite), errors.As(err, &weight), errors.Is(err, quant.ErrNeedsWeights):
				require.Equal(t, make([]byte, len(dst)), dst)
			default:
				t.Fatal(err)
			}
			if cpu == quant.Generic {
				want = dst
			}
			require.Equal(t, want, dst, "%s on %s", d, cpu)
			require.NoError(t, c.Dequantize(make([]float32, 2*cols), dst))
		}
	})
}

// Any bytes decode, the same on every instruction set.
func FuzzDequantize(f *testing.F) {
	f.Add(byte(30), []byte{1, 2, 3, 4, 5, 6, 7, 8, 255, 254, 253})
	f.Fuzz(func(t *testing.T, kind byte, raw []byte) {
		all := tensor.All()
		d := all[int(kind)%len(all)]
		c := quant.Lookup(d)
		blocks := int64(len(raw)) / d.BlockBytes()
		n := blocks * d.Block()
		var want []float32
		for cpu := quant.Generic; cpu <= quant.DetectCPU(); cpu++ {
			require.NoError(t, quant.UseCPU(cpu))
			out := make([]float32, n)
			err := c.Dequantize(out, raw)
			require.Equal(t, c.CanDequantize, err == nil)
			if cpu == quant.Generic {
				want = out
			}
			for i := range out {
				if math.Float32bits(out[i]) != math.Float32bits(want[i]) && (out[i] == out[i] || want[i] == want[i]) {
					t.Fatalf("%s on %s: element %d is %v, want %v", d, cpu, i, out[i], want[i])
				}
			}
		}
	})
}

package quant_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// bitPatterns returns numbers of every kind: every exponent and sign with
// mantissas around what the narrow floats round, NaN and infinities among them.
func bitPatterns() []float32 {
	var x []float32
	rng := rand.New(rand.NewPCG(5, 6))
	for top := range uint32(512) {
		for _, mantissa := range []uint32{0, 1, 0x7fffff} {
			x = append(x, math.Float32frombits(top<<23|mantissa))
		}
		for keep := range 11 {
			unit := uint32(1) << (22 - keep)
			for _, by := range []uint32{unit - 1, unit, unit + 1} {
				odd := rng.Uint32() & 0x7fffff &^ (2*unit - 1)
				x = append(x, math.Float32frombits(top<<23|odd|by&0x7fffff))
			}
		}
		for range 20 {
			x = append(x, math.Float32frombits(top<<23|rng.Uint32()&0x7fffff))
		}
	}
	return x
}

// The float types meet numbers that the quantizers refuse.
func TestFloatKernelsEqualGoCodeForAllKinds(t *testing.T) {
	if quant.DetectCPU() == quant.Generic {
		t.Skip("this machine or build has no kernels")
	}
	defer func() { require.NoError(t, quant.UseCPU(quant.DetectCPU())) }()
	src := bitPatterns()
	codes := make([]byte, 1<<17)
	for i := range 1 << 16 {
		codes[2*i], codes[2*i+1] = byte(i), byte(i>>8)
	}
	for _, d := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F8E4M3, tensor.F8E5M2} {
		c := quant.Lookup(d)
		n := int64(len(src))
		var want []byte
		var stats quant.Stats
		var decoded []uint32
		for cpu := quant.Generic; cpu <= quant.DetectCPU(); cpu++ {
			require.NoError(t, quant.UseCPU(cpu))
			got := make([]byte, n*d.BlockBytes())
			s, err := c.Quantize(got, src, 1, n, nil)
			require.NoError(t, err)
			out := make([]float32, int64(len(codes))/d.BlockBytes())
			require.NoError(t, c.Dequantize(out, codes))
			bits := make([]uint32, len(out))
			for i, v := range out {
				bits[i] = math.Float32bits(v)
			}
			if cpu == quant.Generic {
				want, stats, decoded = got, s, bits
				continue
			}
			require.Equal(t, stats, s, "%s on %s", d, cpu)
			for i := range src {
				size := int(d.BlockBytes())
				require.Equal(t, want[size*i:size*(i+1)], got[size*i:size*(i+1)], "%s on %s: %x", d, cpu, math.Float32bits(src[i]))
			}
			for i := range bits {
				require.Equal(t, decoded[i], bits[i], "%s on %s: code %x", d, cpu, i)
			}
		}
	}
}

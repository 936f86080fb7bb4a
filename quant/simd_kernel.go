//go:build amd64 && !noasm

package quant

import (
	"sync"

	simd "github.com/sdtool/sdtool/quant/internal/kernel"
	"github.com/sdtool/sdtool/tensor"
)

// setQuantizer is a method of simd.Set as an expression.
type setQuantizer = func(s *simd.Set, dst []byte, src []float32, rows, cols int, weights []float32)

// setQuantizers are the conversions of every set, without weights and with.
var setQuantizers = []struct {
	d               tensor.DType
	plain, weighted setQuantizer
}{
	{tensor.F16, (*simd.Set).ToF16, nil},
	{tensor.BF16, (*simd.Set).ToBF16, nil},
	{tensor.F8E4M3, (*simd.Set).ToE4M3, nil},
	{tensor.F8E5M2, (*simd.Set).ToE5M2, nil},
	{tensor.Q4_0, (*simd.Set).Q40, (*simd.Set).Q40},
	{tensor.Q5_0, (*simd.Set).Q50, (*simd.Set).Q50},
	{tensor.Q4_1, (*simd.Set).Q41, (*simd.Set).Q41},
	{tensor.Q5_1, (*simd.Set).Q51, (*simd.Set).Q51},
	{tensor.Q8_0, (*simd.Set).Q80, nil},
	{tensor.Q1_0, (*simd.Set).Q10, nil},
	{tensor.Q2_0, (*simd.Set).Q20, nil},
	{tensor.TQ1_0, (*simd.Set).TQ10, nil},
	{tensor.TQ2_0, (*simd.Set).TQ20, nil},
	{tensor.MXFP4, (*simd.Set).MXFP4, nil},
	{tensor.NVFP4, (*simd.Set).NVFP4, nil},
	{tensor.IQ4_NL, (*simd.Set).IQ4NL, (*simd.Set).IQ4NL},
	{tensor.IQ4_XS, (*simd.Set).IQ4XS, (*simd.Set).IQ4XS},
	{tensor.Q3_K, (*simd.Set).Q3K, (*simd.Set).Q3K},
	{tensor.Q6_K, (*simd.Set).Q6K, (*simd.Set).Q6K},
	{tensor.Q2_K, (*simd.Set).Q2K, (*simd.Set).Q2K},
	{tensor.Q4_K, (*simd.Set).Q4K, (*simd.Set).Q4K},
	{tensor.Q5_K, (*simd.Set).Q5K, (*simd.Set).Q5K},
}

// setDecoders are the way back.
var setDecoders = map[tensor.DType]func(s *simd.Set, dst []float32, src []byte){
	tensor.F16:    (*simd.Set).FromF16,
	tensor.BF16:   (*simd.Set).FromBF16,
	tensor.F8E4M3: (*simd.Set).FromE4M3,
	tensor.F8E5M2: (*simd.Set).FromE5M2,
	tensor.IQ1_S:  func(s *simd.Set, dst []float32, src []byte) { s.FromIQ1S(simdIQ1Levels(), dst, src) },
	tensor.IQ1_M:  func(s *simd.Set, dst []float32, src []byte) { s.FromIQ1M(simdIQ1Levels(), dst, src) },
	tensor.Q8_0:   (*simd.Set).FromQ80,
	tensor.Q4_0:   (*simd.Set).FromQ40,
	tensor.Q4_1:   (*simd.Set).FromQ41,
	tensor.Q5_0:   (*simd.Set).FromQ50,
	tensor.Q5_1:   (*simd.Set).FromQ51,
	tensor.Q2_K:   (*simd.Set).FromQ2K,
	tensor.Q3_K:   (*simd.Set).FromQ3K,
	tensor.Q4_K:   (*simd.Set).FromQ4K,
	tensor.Q5_K:   (*simd.Set).FromQ5K,
	tensor.Q6_K:   (*simd.Set).FromQ6K,
	tensor.TQ2_0:  (*simd.Set).FromTQ20,
	tensor.TQ1_0:  (*simd.Set).FromTQ10,
	tensor.Q2_0:   (*simd.Set).FromQ20,
	tensor.Q1_0:   (*simd.Set).FromQ10,
}

// setGridQuantizer is the same for types with a grid.
type setGridQuantizer = func(s *simd.Set, g *simd.Grid, dst []byte, src []float32, rows, cols int, weights []float32)

// The grids as the kernels want them, made on first use.
var (
	simdIQ2XXS = simdGrid(gridIQ2XXS)
	simdIQ2XS  = simdGrid(gridIQ2XS)
	simdIQ2S   = simdGrid(gridIQ2S)
	simdIQ3XXS = simdGrid(gridIQ3XXS)
	simdIQ3S   = simdGrid(gridIQ3S)
	simdIQ1    = simdGrid(gridIQ1)
)

// simdIQ1Levels are eight levels −1, 0, 1 for each point of the iq1 grid.
var simdIQ1Levels = sync.OnceValue(func() []int8 {
	var out []int8
	for _, p := range gridSpecs.iq1.points() {
		for k := range 8 {
			out = append(out, int8(p>>(2*k)&3)-1)
		}
	}
	return out
})

func simdGrid(from func() *grid) func() *simd.Grid {
	return sync.OnceValue(func() *simd.Grid {
		g := from()
		return simd.NewGrid(g.points, g.dim, g.bits, g.at, g.near)
	})
}

// setGridQuantizers are the conversions with a grid; plain if they work without weights too.
var setGridQuantizers = []struct {
	d     tensor.DType
	grid  func() *simd.Grid
	f     setGridQuantizer
	plain bool
}{
	{tensor.IQ2_XXS, simdIQ2XXS, (*simd.Set).IQ2XXS, false},
	{tensor.IQ2_XS, simdIQ2XS, (*simd.Set).IQ2XS, false},
	{tensor.IQ2_S, simdIQ2S, (*simd.Set).IQ2S, true},
	{tensor.IQ3_XXS, simdIQ3XXS, (*simd.Set).IQ3XXS, true},
	{tensor.IQ3_S, simdIQ3S, (*simd.Set).IQ3S, true},
	{tensor.IQ1_S, simdIQ1, (*simd.Set).IQ1S, false},
	{tensor.IQ1_M, simdIQ1, (*simd.Set).IQ1M, true},
}

func init() {
	hookSet(AVX2, simd.Available(8))
	hookSet(AVX512, simd.Available(16))
}

// hookSet hooks all that a set has; the set is nil where the machine lacks it.
func hookSet(c CPU, s *simd.Set) {
	if s == nil {
		return
	}
	bind := func(f setQuantizer) quantizeKernel {
		if f == nil {
			return nil
		}
		return func(dst []byte, src []float32, rows, cols int, weights []float32) {
			f(s, dst, src, rows, cols, weights)
		}
	}
	decode := func(d tensor.DType) func(dst []float32, src []byte) {
		f := setDecoders[d]
		if f == nil {
			return nil
		}
		return func(dst []float32, src []byte) { f(s, dst, src) }
	}
	for d := range setDecoders {
		hook(c, d, kernel{decode: decode(d)})
	}
	for _, q := range setQuantizers {
		hook(c, q.d, kernel{plain: bind(q.plain), weighted: bind(q.weighted), decode: decode(q.d)})
	}
	hook(c, tensor.Invalid, kernel{scan: s.CountFrom})
	for _, q := range setGridQuantizers {
		f := func(dst []byte, src []float32, rows, cols int, weights []float32) {
			q.f(s, q.grid(), dst, src, rows, cols, weights)
		}
		k := kernel{weighted: f, decode: decode(q.d)}
		if q.plain {
			k.plain = f
		}
		hook(c, q.d, k)
	}
}

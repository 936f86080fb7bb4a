//go:build amd64 && !noasm

package quant

import (
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
	{tensor.Q4_0, (*simd.Set).Q40, (*simd.Set).Q40},
	{tensor.Q5_0, (*simd.Set).Q50, (*simd.Set).Q50},
	{tensor.Q4_1, (*simd.Set).Q41, (*simd.Set).Q41},
	{tensor.Q5_1, (*simd.Set).Q51, (*simd.Set).Q51},
	{tensor.Q8_0, (*simd.Set).Q80, nil},
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
		return func(dst []byte, src []float32, rows, cols int, weights []float32) { f(s, dst, src, rows, cols, weights) }
	}
	for _, q := range setQuantizers {
		hook(c, q.d, kernel{plain: bind(q.plain), weighted: bind(q.weighted)})
	}
}

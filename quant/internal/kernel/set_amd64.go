//go:build !noasm

package kernel

import "golang.org/x/sys/cpu"

//go:generate go generate -C ../../_gen .

// calls are the assembly functions of a set: see stubs_amd64.go.
type calls struct {
	transpose     func(dst, src *float32, stride, n int)
	gather        func(dst *byte, levels *int32, stride, n int)
	sumSquares    func(dst, x *float32, n int)
	sum           func(dst, x *float32, n int)
	rootWeights   func(w, x *float32, n int, base *float32)
	squareWeights func(w, x *float32, n int, base *float32)
	sizeWeights   func(w, x *float32, n int, base *float32)
	qkx           func(x, w *float32, n int, trial *float32, levels *int32, state, steps *float32, nsteps int)
	qkxMAD        func(x, w *float32, n int, trial *float32, levels *int32, state, steps *float32, nsteps int)
	qx            func(x, w *float32, n int, levels *int32, scales, steps *float32, nsteps int)
	qxAny         func(x, w *float32, n int, levels *int32, scales, steps *float32, nsteps int) // of numbers that may be infinite
	q3            func(x *float32, n int, trial *float32, levels *int32, scales *float32)
	qp            func(x, w *float32, n int, levels *int32, scales, steps *float32, nsteps int)
	requantize    func(x *float32, n int, levels *int32, d, m *float32, bounds *uint32)
	toHalf        func(dst *uint16, src *float32, n int)
	fromHalf      func(dst *float32, src *uint16, n int)
	extremes      func(dst, x *float32, n int)
	affine        func(x *float32, n int, levels *int32, base, inverse, offset *float32, most *int32)
	notNegative   func(dst *byte, x *float32, n int)
	rounded       func(x *float32, n int, levels *int32, inverse *float32)
	fp4           func(x *float32, n int, levels *int32, d, mids *float32, nmids int)
	iq4           func(x, w *float32, n int, scales, steps *float32, nsteps int, tables *float32)
	iq4Levels     func(x *float32, n int, levels *int32, inverse, tables *float32)
	grid2         func(args *uint64)
	grid3         func(args *uint64)
	gridSums      func(dst *float32, levels *byte, x, w *float32, n int)
	roots         func(dst, src *float32, n int)
	gridNearest   func(x, w, values *float32, list *uint16, chunks int, scratch *uint32) (pos int)
	toBrain       func(dst *uint16, src *float32, n int)
	fromBrain     func(dst *float32, src *uint16, n int)
	toE4M3        func(dst *byte, src *float32, n int)
	fromE4M3      func(dst *float32, src *byte, n int)
	toE5M2        func(dst *byte, src *float32, n int)
	fromE5M2      func(dst *float32, src *byte, n int)

	q80, q40, q41, q50, q51, q2K, q3K, q4K, q5K, q6K, tq20, tq10, q20, q10 func(dst *float32, src *byte, n int)

	iq1s                   func(sums, x, w, values *float32)
	iq1m                   func(sums, x, w, values, tables *float32, groups *int64, levels *int32, vectors int)
	choose2, choose4       func(sums *float32, slots int, weight, scale *float32) (pos int)
	decodeIQ1S, decodeIQ1M func(dst *float32, src *byte, n int, points *int8)
}

var (
	avx2 = Set{8, calls{
		transposeAVX2, gatherAVX2, sumSquaresAVX2, sumAVX2, rootWeightsAVX2, squareWeightsAVX2, sizeWeightsAVX2,
		qkxAVX2, qkxMADAVX2, qxAVX2, qxAnyAVX2, q3AVX2, qpAVX2, requantizeAVX2, toHalfAVX2, fromHalfAVX2,
		extremesAVX2, affineAVX2, notNegativeAVX2, roundedAVX2, fp4AVX2, iq4AVX2, iq4LevelsAVX2, grid2AVX2, grid3AVX2, gridSumsAVX2, rootsAVX2, gridNearestAVX2,
		toBrainAVX2, fromBrainAVX2, toE4M3AVX2, fromE4M3AVX2, toE5M2AVX2, fromE5M2AVX2,
		q80AVX2, q40AVX2, q41AVX2, q50AVX2, q51AVX2, q2KAVX2, q3KAVX2, q4KAVX2, q5KAVX2, q6KAVX2, tq20AVX2, tq10AVX2, q20AVX2, q10AVX2,
		iq1sAVX2, iq1mAVX2, choose2AVX2, choose4AVX2, decodeIQ1SAVX2, decodeIQ1MAVX2,
	}}
	avx512 = Set{16, calls{
		transposeAVX512, gatherAVX512, sumSquaresAVX512, sumAVX512, rootWeightsAVX512, squareWeightsAVX512, sizeWeightsAVX512,
		qkxAVX512, qkxMADAVX512, qxAVX512, qxAnyAVX512, q3AVX512, qpAVX512, requantizeAVX512, toHalfAVX512, fromHalfAVX512,
		extremesAVX512, affineAVX512, notNegativeAVX512, roundedAVX512, fp4AVX512, iq4AVX512, iq4LevelsAVX512, grid2AVX512, grid3AVX512, gridSumsAVX512, rootsAVX512, gridNearestAVX512,
		toBrainAVX512, fromBrainAVX512, toE4M3AVX512, fromE4M3AVX512, toE5M2AVX512, fromE5M2AVX512,
		q80AVX512, q40AVX512, q41AVX512, q50AVX512, q51AVX512, q2KAVX512, q3KAVX512, q4KAVX512, q5KAVX512, q6KAVX512, tq20AVX512, tq10AVX512, q20AVX512, q10AVX512,
		iq1sAVX512, iq1mAVX512, choose2AVX512, choose4AVX512, decodeIQ1SAVX512, decodeIQ1MAVX512,
	}}
)

func available(lanes int) *Set {
	x := &cpu.X86
	// Every processor with AVX2 has F16C, for which there is no flag.
	if !x.HasAVX2 || !x.HasFMA || !x.HasBMI1 || !x.HasBMI2 {
		return nil
	}
	switch {
	case lanes == 8:
		return &avx2
	case lanes == 16 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512DQ && x.HasAVX512VL:
		return &avx512
	}
	return nil
}

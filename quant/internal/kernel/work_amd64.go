//go:build !noasm

package kernel

import (
	"math"
	"sync"
	"unsafe"
)

const (
	maxLanes   = 16
	superBlock = 256
)

// work is the scratch of one call. Arrays named [n*maxLanes] hold n registers.
type work struct {
	x, w           [superBlock * maxLanes]float32
	levels         [superBlock * maxLanes]int32
	trial          [64 * maxLanes]float32
	state          [(2*qkxState + 1) * maxLanes]float32
	tail, wrap     [superBlock * maxLanes]float32 // blocks as they lie in rows
	scales         [16 * maxLanes]float32
	mins, sums     [16 * maxLanes]float32
	stepsL, stepsM [16 * maxLanes]int32 // quantized scales and mins
	dj, mj         [16 * maxLanes]float32
	base, d, m     [maxLanes]float32
	halfD, halfM   [maxLanes]uint16
	bytes          [superBlock * maxLanes]byte
	packed         [maxLanes][32]byte
	fit            [8 * maxLanes]float32 // what a sub-block's levels are made with
	rowSums        []float32
}

var works = sync.Pool{New: func() any { return new(work) }}

// qkxState is how many registers of state qkx keeps for each of its two searches:
// the first three are scale, minimum and Σw.
const qkxState = 12

// blocks calls f for as many blocks at a time as there are lanes. x and qw point to
// them in row order, with zeros beyond count; qw is nil if weights is.
func (s *Set) blocks(wk *work, src []float32, rows, cols, block int, weights []float32, f func(first, count int, x, qw *float32)) {
	wk.blocks(s.lanes, src, rows, cols, block, weights, f)
}

// blocks calls f for as many blocks at a time as asked for.
func (wk *work) blocks(many int, src []float32, rows, cols, block int, weights []float32, f func(first, count int, x, qw *float32)) {
	total := rows * cols / block
	for first := 0; first < total; first += many {
		count := min(many, total-first)
		from, size := first*block, many*block
		x := &src[from]
		if count < many {
			n := copy(wk.tail[:size], src[from:total*block])
			clear(wk.tail[n:size])
			x = &wk.tail[0]
		}
		var qw *float32
		if weights != nil {
			if at := from % cols; at+size <= cols {
				qw = &weights[at]
			} else {
				for n := 0; n < size; at = 0 {
					n += copy(wk.wrap[n:size], weights[at:cols])
				}
				qw = &wk.wrap[0]
			}
		}
		f(first, count, x, qw)
	}
}

// bound is a level's limit as the rounders of the assembly take it: the bits of
// 1.5·2^23 + level.
func bound(level int) float32 { return 12582912 + float32(level) }

// rangeSteps are the steps of qkx: nmax, its bound and rmin + rdelta·i + nmax for
// i = 0..last.
func rangeSteps(nmax int, rmin, rdelta float32, last int) []float32 {
	steps := []float32{float32(nmax), bound(nmax)}
	for i := range last + 1 {
		steps = append(steps, rmin+float32(rdelta*float32(i))+float32(nmax))
	}
	return steps
}

// signedSteps are those of qx: the bounds, −nmax and −(nmax + i/10).
func signedSteps(nmax int) []float32 {
	steps := []float32{bound(-nmax), bound(nmax - 1), -float32(nmax)}
	for i := -9; i <= 9; i++ {
		if i != 0 {
			steps = append(steps, -(float32(nmax) + float32(0.1*float32(i))))
		}
	}
	return steps
}

// positiveSteps are those of qp: nmax, its bound and i/10 + nmax.
func positiveSteps(nmax int) []float32 {
	steps := []float32{float32(nmax), bound(nmax)}
	for i := -4; i <= 4; i++ {
		if i != 0 {
			steps = append(steps, float32(0.1*float32(i))+float32(nmax))
		}
	}
	return steps
}

// levelBounds are the bounds of requantize.
func levelBounds(low, high int) [2]uint32 {
	return [2]uint32{math.Float32bits(bound(low)), math.Float32bits(bound(high))}
}

// nearest is quant's: ggml's nearest_int.
func nearest(f float32) int32 {
	return int32(math.Float32bits(f+12582912)&0x007fffff) - 0x00400000
}

func abs(f float32) float32 { return math.Float32frombits(math.Float32bits(f) &^ (1 << 31)) }

// slice is the n numbers from p on.
func slice(p *float32, n int) []float32 { return unsafe.Slice(p, n) }

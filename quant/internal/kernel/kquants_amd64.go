//go:build !noasm

package kernel

import (
	"encoding/binary"
	"math"
)

var le = binary.LittleEndian

// rangeType is a super-block type with scales and minimums: q2_K, q4_K, q5_K.
type rangeType struct {
	sub                     int // numbers in a sub-block
	bytes                   int // of a block
	plain, weighted, second []float32
	bounds                  [2]uint32
	mad                     bool    // without weights: the errors' sizes count, not their squares
	sigma                   float32 // the mean square counts so many times
}

var (
	q2K = rangeType{
		sub: 16, bytes: 84, plain: rangeSteps(3, -0.5, 0.1, 15), weighted: rangeSteps(3, -0.9, 0.05, 36), second: positiveSteps(15),
		bounds: levelBounds(0, 3), mad: true, sigma: 1,
	}
	q4K = rangeType{
		sub: 32, bytes: 144, plain: rangeSteps(15, -1, 0.1, 20), weighted: rangeSteps(15, -0.9, 0.05, 36), second: positiveSteps(63),
		bounds: levelBounds(0, 15), sigma: 2,
	}
	q5K = rangeType{
		sub: 32, bytes: 176, plain: rangeSteps(31, -0.5, 0.1, 15), weighted: rangeSteps(31, -0.9, 0.05, 36), second: positiveSteps(63),
		bounds: levelBounds(0, 31), sigma: 2,
	}
)

// fitRange finds scales, mins and levels of every sub-block, and with weights
// their second-level fit: stepsL, stepsM, d and m.
func (s *Set) fitRange(wk *work, t *rangeType, x, qw *float32) {
	v, n := s.lanes, t.sub
	subs := superBlock / n
	s.transpose(&wk.x[0], x, 4*superBlock, superBlock)
	clear(wk.base[:])
	steps, fit := t.plain, s.qkx
	switch {
	case qw != nil:
		steps = t.weighted
		s.transpose(&wk.w[0], qw, 4*superBlock, superBlock)
		s.sumSquares(&wk.base[0], &wk.x[0], superBlock)
		for k := range wk.base[:v] {
			wk.base[k] = t.sigma * wk.base[k] / superBlock
		}
		s.rootWeights(&wk.w[0], &wk.x[0], superBlock, &wk.base[0])
	case t.mad:
		fit = s.qkxMAD
		s.sizeWeights(&wk.w[0], &wk.x[0], superBlock, &wk.base[0])
	default:
		for j := range subs {
			at := j * n * v
			clear(wk.base[:])
			s.sumSquares(&wk.base[0], &wk.x[at], n)
			for k := range wk.base[:v] {
				wk.base[k] = float32(math.Sqrt(float64(wk.base[k] / float32(n))))
			}
			s.sizeWeights(&wk.w[at], &wk.x[at], n, &wk.base[0])
		}
	}
	for j := 0; j < subs; j += 2 {
		at := j * n * v
		fit(&wk.x[at], &wk.w[at], n, &wk.trial[0], &wk.levels[at], &wk.state[0], &steps[0], len(steps)-2)
		for p := range 2 {
			state := wk.state[p*qkxState*v:]
			copy(wk.scales[(j+p)*v:], state[:v])
			for k, low := range state[v : 2*v] {
				wk.mins[(j+p)*v+k] = -low
			}
			copy(wk.sums[(j+p)*v:], state[2*v:3*v])
		}
	}
	if qw != nil {
		second := t.second
		s.qp(&wk.scales[0], &wk.sums[0], subs, &wk.stepsL[0], &wk.d[0], &second[0], len(second)-2)
		s.qp(&wk.mins[0], &wk.sums[0], subs, &wk.stepsM[0], &wk.m[0], &second[0], len(second)-2)
	}
}

// top returns the largest of n scales of lane k, from 0.
func (s *Set) top(scales []float32, n, k int) float32 {
	high := float32(0)
	for j := range n {
		if v := scales[j*s.lanes+k]; v > high {
			high = v
		}
	}
	return high
}

// plainSteps quantizes n scales of each lane to 0..most of the largest.
func (s *Set) plainSteps(scales []float32, steps []int32, d []float32, n int, most float32) {
	for k := range s.lanes {
		high := s.top(scales, n, k)
		inv := float32(0)
		if high > 0 {
			inv = most / high
		}
		for j := range n {
			steps[j*s.lanes+k] = nearest(inv * scales[j*s.lanes+k])
		}
		d[k] = high / most
	}
}

// roundHalves stores d and m as halves and takes back what they have become.
func (s *Set) roundHalves(wk *work) {
	s.toHalf(&wk.halfD[0], &wk.d[0], s.lanes)
	s.toHalf(&wk.halfM[0], &wk.m[0], s.lanes)
	s.fromHalf(&wk.d[0], &wk.halfD[0], s.lanes)
	s.fromHalf(&wk.m[0], &wk.halfM[0], s.lanes)
}

// finish requantizes all sub-blocks with dj and mj and brings levels into rows.
func (s *Set) finish(wk *work, n int, bounds *[2]uint32) {
	for j := range superBlock / n {
		at := j * n * s.lanes
		s.requantize(&wk.x[at], n, &wk.levels[at], &wk.dj[j*s.lanes], &wk.mj[j*s.lanes], &bounds[0])
	}
	s.gather(&wk.bytes[0], &wk.levels[0], superBlock, superBlock)
}

// Q2K quantizes to q2_K.
func (s *Set) Q2K(dst []byte, src []float32, rows, cols int, weights []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	s.blocks(wk, src, rows, cols, superBlock, weights, func(first, count int, x, qw *float32) {
		s.fitRange(wk, &q2K, x, qw)
		if qw == nil {
			s.plainSteps(wk.scales[:], wk.stepsL[:], wk.d[:], 16, 15)
			s.plainSteps(wk.mins[:], wk.stepsM[:], wk.m[:], 16, 15)
		}
		s.roundHalves(wk)
		for j := range 16 {
			for k := range v {
				b := byte(wk.stepsL[j*v+k]) | byte(wk.stepsM[j*v+k])<<4
				wk.packed[k][j] = b
				wk.dj[j*v+k] = wk.d[k] * float32(b&15)
				wk.mj[j*v+k] = wk.m[k] * float32(b>>4)
			}
		}
		s.finish(wk, 16, &q2K.bounds)
		for k := range count {
			out, q := dst[84*(first+k):84*(first+k)+84], wk.bytes[superBlock*k:superBlock*(k+1)]
			copy(out[:16], wk.packed[k][:])
			le.PutUint16(out[80:], wk.halfD[k])
			le.PutUint16(out[82:], wk.halfM[k])
			packTwoBits(out[16:80], q)
		}
	})
}

// packTwoBits packs 256 levels of 2 bits: byte l of each half holds elements l, l+32, l+64, l+96.
func packTwoBits(dst, q []byte) {
	for i := 0; i < 64; i += 8 {
		at := q[i/32*128+i%32:]
		le.PutUint64(dst[i:], le.Uint64(at)|le.Uint64(at[32:])<<2|le.Uint64(at[64:])<<4|le.Uint64(at[96:])<<6)
	}
}

// sixBitScales packs scales and mins of all lanes as q4_K and q5_K do, and sets dj and mj.
func (s *Set) sixBitScales(wk *work) {
	v := s.lanes
	for k := range v {
		p := wk.packed[k][:12]
		for j := range 4 {
			p[j], p[j+4] = byte(wk.stepsL[j*v+k]), byte(wk.stepsM[j*v+k])
		}
		for j := 4; j < 8; j++ {
			sc, m := byte(wk.stepsL[j*v+k]), byte(wk.stepsM[j*v+k])
			p[j+4] = sc&15 | m&15<<4
			p[j-4] |= sc >> 4 << 6
			p[j] |= m >> 4 << 6
		}
		for j := range 4 {
			wk.dj[j*v+k] = wk.d[k] * float32(p[j]&63)
			wk.mj[j*v+k] = wk.m[k] * float32(p[j+4]&63)
		}
		for j := 4; j < 8; j++ {
			wk.dj[j*v+k] = wk.d[k] * float32(p[j+4]&15|p[j-4]>>6<<4)
			wk.mj[j*v+k] = wk.m[k] * float32(p[j+4]>>4|p[j]>>6<<4)
		}
	}
}

// limitSteps cuts quantized scales, taken as bytes, to 63.
func limitSteps(steps []int32) {
	for i, l := range steps {
		steps[i] = int32(min(63, uint8(l)))
	}
}

func (s *Set) range45(wk *work, t *rangeType, x, qw *float32, limit bool) {
	s.fitRange(wk, t, x, qw)
	n := 8 * s.lanes
	if qw == nil {
		s.plainSteps(wk.scales[:], wk.stepsL[:], wk.d[:], 8, 63)
		s.plainSteps(wk.mins[:], wk.stepsM[:], wk.m[:], 8, 63)
	}
	if limit || qw == nil {
		limitSteps(wk.stepsL[:n])
		limitSteps(wk.stepsM[:n])
	}
	s.roundHalves(wk)
	s.sixBitScales(wk)
	s.finish(wk, 32, &t.bounds)
}

// Q4K quantizes to q4_K.
func (s *Set) Q4K(dst []byte, src []float32, rows, cols int, weights []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	s.blocks(wk, src, rows, cols, superBlock, weights, func(first, count int, x, qw *float32) {
		s.range45(wk, &q4K, x, qw, false)
		for k := range count {
			out, q := dst[144*(first+k):144*(first+k)+144], wk.bytes[superBlock*k:superBlock*(k+1)]
			le.PutUint16(out, wk.halfD[k])
			le.PutUint16(out[2:], wk.halfM[k])
			copy(out[4:16], wk.packed[k][:12])
			for i := 0; i < 128; i += 8 {
				at := q[i/32*64+i%32:]
				le.PutUint64(out[16+i:], le.Uint64(at)|le.Uint64(at[32:])<<4)
			}
		}
	})
}

const (
	low4 = 0x0f0f0f0f0f0f0f0f
	low1 = 0x0101010101010101
)

// Q5K quantizes to q5_K.
func (s *Set) Q5K(dst []byte, src []float32, rows, cols int, weights []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	s.blocks(wk, src, rows, cols, superBlock, weights, func(first, count int, x, qw *float32) {
		s.range45(wk, &q5K, x, qw, true)
		for k := range count {
			out, q := dst[176*(first+k):176*(first+k)+176], wk.bytes[superBlock*k:superBlock*(k+1)]
			le.PutUint16(out, wk.halfD[k])
			le.PutUint16(out[2:], wk.halfM[k])
			copy(out[4:16], wk.packed[k][:12])
			for l := 0; l < 32; l += 8 {
				high := uint64(0)
				for g := range 4 {
					a, b := le.Uint64(q[64*g+l:]), le.Uint64(q[64*g+32+l:])
					le.PutUint64(out[48+32*g+l:], a&low4|b&low4<<4)
					high |= (a>>4&low1)<<(2*g) | (b>>4&low1)<<(2*g+1)
				}
				le.PutUint64(out[16+l:], high)
			}
		}
	})
}

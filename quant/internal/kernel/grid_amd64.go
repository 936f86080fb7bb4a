//go:build !noasm

package kernel

import (
	"sync"
	"unsafe"
)

// Grid is a set of points with the lists of those near what is not a point, laid
// out for the searches: points as packed levels, lists in chunks of 16.
type Grid struct {
	dim, bits int
	// index maps packed levels to the number of a point, or to less than 0.
	index []int32
	lists map[int]*lists // by lanes
}

// lists are in chunks of as many points as a register has lanes.
type lists struct {
	// entries maps packed levels to 0 for a point, else to the first chunk of its
	// list in near, shifted by 8, and the number of chunks.
	entries []uint32
	near    []uint16
}

// NewGrid takes quant's tables: points of dim levels of so many bits, and at,
// which maps packed levels to a point or to -(offset+1) of a list in near, a
// count and then points.
func NewGrid(points []uint16, dim, bits int, at []int32, near []uint16) *Grid {
	g := &Grid{dim: dim, bits: bits, index: at, lists: make(map[int]*lists)}
	for _, lanes := range []int{8, 16} {
		g.lists[lanes] = newLists(points, at, near, lanes)
	}
	return g
}

// newLists fills lists up with their last point, which does not change which one
// is the first of the nearest.
func newLists(points []uint16, at []int32, near []uint16, chunk int) *lists {
	l := &lists{entries: make([]uint32, len(at))}
	for u, a := range at {
		if a >= 0 {
			continue
		}
		list := near[-a:][:near[-a-1]]
		chunks := (len(list) + chunk - 1) / chunk
		l.entries[u] = uint32(len(l.near)/chunk)<<8 | uint32(chunks)
		for i := range chunks * chunk {
			l.near = append(l.near, points[list[min(i, len(list)-1)]])
		}
	}
	return l
}

// pack puts the levels of a group together.
func (g *Grid) pack(levels []byte) uint32 {
	if g.bits == 3 {
		x := le.Uint32(levels)
		x = (x | x>>5) & 0x003f003f
		return (x | x>>10) & 0xfff
	}
	x := le.Uint64(levels)
	x = (x | x>>6) & 0x000f000f000f000f
	x = (x | x>>12) & 0x000000ff000000ff
	return uint32(x|x>>24) & 0xffff
}

// number returns the number of a group's point.
func (g *Grid) number(levels []byte) uint32 { return uint32(max(0, g.index[g.pack(levels)])) }

// gridType is quant's gridFit: how one type searches.
type gridType struct {
	block                     int // bytes
	sub                       int
	parity                    bool
	tiny                      float32
	exactZero                 bool
	span, step                float32
	tries                     int
	onGrid, allGroups, always bool
	fromQP                    bool
	sigma                     float32 // the mean square counts so many times
	quarter                   bool    // without weights a quarter of it is added to the squares
}

// gridArgs are the arguments of grid2 and grid3, in the order that the generator knows.
type gridArgs struct {
	x, waux, ids, scales *float32
	trials, n            int
	entries              *uint32
	near                 *uint16
	levels, on           *byte
	scratch              *uint32
}

const maxTrials = 32

// gridWork is the scratch of a call for a grid type.
type gridWork struct {
	work
	args        gridArgs
	sizes, w    [maxLanes * superBlock]float32 // in row order
	waux        [superBlock]float32
	signs       [maxLanes * superBlock / 8]byte
	ids, scales [maxTrials]float32
	levels      [maxTrials * 32]byte
	on          [maxTrials]byte
	sums        [2 * maxLanes]float32
	qx, q2      [maxTrials + maxLanes]float32
	chosen      [superBlock]byte // levels of a super-block
	subScales   [16]float32
	fine        [16]bool          // sub-blocks that are not zero
	spread      [maxLanes]float32 // one super-block's base in all lanes
	scratch     [maxLanes]uint32
	second      [8 * maxLanes]float32
}

var gridWorks = sync.Pool{New: func() any { return new(gridWork) }}

// trial rounds a sub-block with several scales: levels and on get the results.
func (s *Set) trial(wk *gridWork, g *Grid, x, waux *float32, n, trials int) {
	l := g.lists[s.lanes]
	wk.args = gridArgs{
		x: x, waux: waux, ids: &wk.ids[0], scales: &wk.scales[0], trials: trials, n: n,
		entries: &l.entries[0], near: &l.near[0], levels: &wk.levels[0], on: &wk.on[0], scratch: &wk.scratch[0],
	}
	args := (*uint64)(unsafe.Pointer(&wk.args))
	if g.bits == 3 {
		s.grid3(args)
	} else {
		s.grid2(args)
	}
}

// eachGrid fits all sub-blocks and calls emit for every super-block, with its number and
// its place in the scratch.
func (s *Set) eachGrid(t *gridType, g *Grid, src []float32, rows, cols int, weights []float32, emit func(wk *gridWork, b, k int)) {
	wk := gridWorks.Get().(*gridWork)
	defer gridWorks.Put(wk)
	v := s.lanes
	s.blocks(&wk.work, src, rows, cols, superBlock, weights, func(first, count int, xp, qp *float32) {
		x := slice(xp, v*superBlock)
		s.gridWeights(wk, x, qp, count, t.sigma, t.quarter)
		for i := 0; i < count*superBlock; i += 8 {
			wk.signs[i/8] = t.takeSigns(wk.sizes[i:i+8], x[i:i+8], wk.w[i:i+8])
		}
		if t.fromQP {
			s.transpose(&wk.work.x[0], &wk.sizes[0], 4*superBlock, superBlock)
			s.transpose(&wk.work.w[0], &wk.w[0], 4*superBlock, superBlock)
			for j := range 8 {
				at := 32 * j * v
				s.qp(&wk.work.x[at], &wk.work.w[at], 32, &wk.work.levels[0], &wk.second[j*v], &gridFirst[0], len(gridFirst)-2)
			}
		}
		for k := range count {
			at := k * superBlock
			s.roots(&wk.waux[0], &wk.w[at], superBlock/v)
			for ib := range superBlock / t.sub {
				wk.fine[ib] = s.fitSub(wk, t, g, k, ib)
			}
			emit(wk, first+k, k)
		}
	})
}

// gridWeights sets w of count super-blocks, in row order.
func (s *Set) gridWeights(wk *gridWork, x []float32, qp *float32, count int, sigma float32, quarter bool) {
	v := s.lanes
	clear(wk.base[:])
	if qp != nil || quarter {
		s.transpose(&wk.x[0], &x[0], 4*superBlock, superBlock)
		s.sumSquares(&wk.base[0], &wk.x[0], superBlock)
		for k := range wk.base[:v] {
			wk.base[k] = sigma * wk.base[k] / superBlock
			if qp == nil {
				wk.base[k] *= 0.25
			}
		}
	}
	if qp != nil {
		copy(wk.w[:], unsafe.Slice(qp, v*superBlock))
	}
	for k := range count {
		for i := range wk.spread {
			wk.spread[i] = wk.base[k]
		}
		if at := k * superBlock; qp != nil {
			s.rootWeights(&wk.w[at], &x[at], superBlock/v, &wk.spread[0])
		} else {
			s.squareWeights(&wk.w[at], &x[at], superBlock/v, &wk.spread[0])
		}
	}
}

var gridFirst = positiveSteps(4)

// takeSigns is quant's: it sets sizes and returns the signs of 8 numbers.
func (t *gridType) takeSigns(size, x, w []float32) byte {
	size, x, w = size[:8], x[:8], w[:8]
	signs := uint32(0)
	for i, v := range x {
		// Negative, unless -0; what is no number counts as negative.
		if v >= 0 {
			size[i] = v
		} else {
			size[i] = -v
			signs |= 1 << i
		}
	}
	if !t.parity {
		return byte(signs)
	}
	odd := signs ^ signs>>4
	odd ^= odd >> 2
	odd ^= odd >> 1
	if odd&1 != 0 {
		at, least := 0, float32(w[0]*x[0])*x[0]
		for i := 1; i < 8; i++ {
			if c := float32(w[i]*x[i]) * x[i]; c < least {
				least, at = c, i
			}
		}
		size[at] = -size[at]
		signs ^= 1 << at
	}
	return byte(signs & 127)
}

// fitSub is quant's gridFit.fitSub for sub-block ib of the super-block in place k: it
// sets chosen and subScales, and signs if the scale came out negative.
func (s *Set) fitSub(wk *gridWork, t *gridType, g *Grid, k, ib int) bool {
	n := t.sub
	at := k*superBlock + ib*n
	x, w := wk.sizes[at:at+n], wk.w[at:at+n]
	chosen := wk.chosen[ib*n : ib*n+n]
	clear(chosen)
	wk.subScales[ib] = 0
	high := x[0]
	for _, v := range x[1:] {
		if !(high > v) {
			high = v
		}
	}
	if high < t.tiny || t.exactZero && high == 0 {
		return false
	}
	scale := high / t.span
	if t.fromQP {
		scale = wk.second[ib*s.lanes+k]
		high = float32(scale * 3)
		if high <= 0 {
			return false
		}
	}
	trials := 2*t.tries + 1
	for i := range trials {
		wk.ids[i] = (t.span + float32(float32(i-t.tries)*t.step)) / high
		wk.scales[i] = 1 / wk.ids[i]
	}
	waux := &wk.waux[ib*n]
	s.trial(wk, g, &x[0], waux, n, trials)
	s.sumTrials(wk, x, w, trials)
	groups := n / g.dim
	on := byte(0)
	if t.onGrid {
		on = byte(1<<groups - 1)
	}
	best, from := float32(0), -1
	for i := range trials {
		qx, q2 := wk.qx[i], wk.q2[i]
		if q2 > 0 && float32(qx*qx) > float32(best*q2) {
			scale = qx / q2
			best = float32(scale * qx)
			on, from = wk.on[i], i
		}
	}
	if from >= 0 {
		copy(chosen, wk.levels[32*from:])
	}
	if off := byte(1<<groups-1) &^ on; scale > 0 && (t.always || off != 0) {
		wk.ids[0], wk.scales[0] = 1/scale, scale
		s.trial(wk, g, &x[0], waux, n, 1)
		for k := range groups {
			if t.always || t.allGroups || off>>k&1 != 0 {
				copy(chosen[g.dim*k:g.dim*(k+1)], wk.levels[g.dim*k:])
			}
		}
		copy(wk.levels[:], chosen)
		s.sumTrials(wk, x, w, 1)
		if wk.q2[0] > 0 {
			scale = wk.qx[0] / wk.q2[0]
		}
	}
	if scale < 0 { // ggml's own remark: this should never happen
		scale = -scale
		for i := at / 8; i < (at+n)/8; i++ {
			wk.signs[i] = ^wk.signs[i]
			if t.parity {
				wk.signs[i] &= 127
			}
		}
	}
	wk.subScales[ib] = scale
	return true
}

// sumTrials sets qx and q2 of the trials in levels.
func (s *Set) sumTrials(wk *gridWork, x, w []float32, trials int) {
	v := s.lanes
	for i := 0; i < trials; i += v {
		s.gridSums(&wk.sums[0], &wk.levels[32*i], &x[0], &w[0], len(x))
		copy(wk.qx[i:], wk.sums[:v])
		copy(wk.q2[i:], wk.sums[v:2*v])
	}
}

// gridScales quantizes the sub-blocks' scales to 4 bits and returns the step, 0 if all are 0.
func gridScales(scales []float32, codes []byte) float32 {
	high := float32(0)
	for _, s := range scales {
		if s > high {
			high = s
		}
	}
	if high == 0 {
		return 0
	}
	d := high / 31
	id := 1 / d
	for i, s := range scales {
		codes[i] = byte(min(max(nearest(float32(0.5*(float32(id*s)-1))), 0), 15))
	}
	return d
}

// half is one number as half precision.
func (s *Set) half(wk *gridWork, f float32) uint16 {
	wk.d[0] = f
	s.toHalf(&wk.halfD[0], &wk.d[0], s.lanes)
	return wk.halfD[0]
}

var (
	iq2xxs = gridType{block: 66, sub: 32, parity: true, tiny: 1e-15, span: 5, step: 0.1, tries: 6, always: true, fromQP: true, sigma: 1}
	iq2xs  = gridType{block: 74, sub: 16, parity: true, tiny: 1e-15, span: 5, step: 0.1, tries: 9, onGrid: true, sigma: 1}
	iq2s   = gridType{block: 82, sub: 16, tiny: 1e-8, span: 5, step: 0.1, tries: 9, onGrid: true, sigma: 2, quarter: true}
	iq3xxs = gridType{block: 98, sub: 32, parity: true, tiny: 1e-8, span: 15, step: 0.2, tries: 15, onGrid: true, sigma: 2}
	iq3s   = gridType{block: 110, sub: 32, exactZero: true, span: 15, step: 0.2, tries: 9, allGroups: true, sigma: 2}
)

// signsOf returns the signs of group i of 8 of the super-block in place k.
func (wk *gridWork) signsOf(k, i int) byte { return wk.signs[k*superBlock/8+i] }

// IQ2XXS quantizes to iq2_xxs.
func (s *Set) IQ2XXS(g *Grid, dst []byte, src []float32, rows, cols int, weights []float32) {
	s.eachGrid(&iq2xxs, g, src, rows, cols, weights, func(wk *gridWork, b, k int) {
		out := dst[66*b : 66*b+66]
		clear(out)
		var codes [8]byte
		d := gridScales(wk.subScales[:8], codes[:])
		le.PutUint16(out, s.half(wk, d))
		for ib, c := range codes {
			if !wk.fine[ib] {
				le.PutUint32(out[6+8*ib:], uint32(c)<<28)
				continue
			}
			signs := uint32(c) << 28
			for i := range 4 {
				out[2+8*ib+i] = byte(g.number(wk.chosen[32*ib+8*i:]))
				signs |= uint32(wk.signsOf(k, 4*ib+i)) << (7 * i)
			}
			le.PutUint32(out[6+8*ib:], signs)
		}
		if !wk.someScale(8) {
			clear(out)
		}
	})
}

// someScale reports whether one of n sub-blocks has a positive scale.
func (wk *gridWork) someScale(n int) bool {
	for _, s := range wk.subScales[:n] {
		if s > 0 {
			return true
		}
	}
	return false
}

// IQ2XS quantizes to iq2_xs.
func (s *Set) IQ2XS(g *Grid, dst []byte, src []float32, rows, cols int, weights []float32) {
	s.eachGrid(&iq2xs, g, src, rows, cols, weights, func(wk *gridWork, b, k int) {
		out := dst[74*b : 74*b+74]
		clear(out)
		if !wk.someScale(16) {
			return
		}
		var codes [16]byte
		le.PutUint16(out, s.half(wk, gridScales(wk.subScales[:], codes[:])))
		for i := range 32 {
			if wk.fine[i/2] {
				le.PutUint16(out[2+2*i:], uint16(g.number(wk.chosen[8*i:]))|uint16(wk.signsOf(k, i))<<9)
			}
		}
		for i := range 8 {
			out[66+i] = codes[2*i] | codes[2*i+1]<<4
		}
	})
}

// IQ2S quantizes to iq2_s.
func (s *Set) IQ2S(g *Grid, dst []byte, src []float32, rows, cols int, weights []float32) {
	s.eachGrid(&iq2s, g, src, rows, cols, weights, func(wk *gridWork, b, k int) {
		out := dst[82*b : 82*b+82]
		clear(out)
		for i := range 32 {
			if wk.fine[i/2] {
				at := g.number(wk.chosen[8*i:])
				out[2+i] = byte(at)
				out[66+i/4] |= byte(at>>8) << (2 * (i % 4))
				out[34+i] = wk.signsOf(k, i)
			}
		}
		if !wk.someScale(16) {
			return
		}
		var codes [16]byte
		le.PutUint16(out, s.half(wk, gridScales(wk.subScales[:], codes[:])*0.9875))
		for i := range 8 {
			out[74+i] = codes[2*i] | codes[2*i+1]<<4
		}
	})
}

// IQ3XXS quantizes to iq3_xxs.
func (s *Set) IQ3XXS(g *Grid, dst []byte, src []float32, rows, cols int, weights []float32) {
	s.eachGrid(&iq3xxs, g, src, rows, cols, weights, func(wk *gridWork, b, k int) {
		out := dst[98*b : 98*b+98]
		clear(out)
		if !wk.someScale(8) {
			return
		}
		var codes [8]byte
		le.PutUint16(out, s.half(wk, gridScales(wk.subScales[:8], codes[:])*1.0125))
		for ib, c := range codes {
			word := uint32(c) << 28
			if wk.fine[ib] {
				for i := range 8 {
					out[2+8*ib+i] = byte(g.number(wk.chosen[32*ib+4*i:]))
				}
				for i := range 4 {
					word |= uint32(wk.signsOf(k, 4*ib+i)) << (7 * i)
				}
			}
			le.PutUint32(out[66+4*ib:], word)
		}
	})
}

// IQ3S quantizes to iq3_s with ggml's bytes: it does not move on in qs and signs
// over an all-zero sub-block.
func (s *Set) IQ3S(g *Grid, dst []byte, src []float32, rows, cols int, weights []float32) {
	s.eachGrid(&iq3s, g, src, rows, cols, weights, func(wk *gridWork, b, k int) {
		out := dst[110*b : 110*b+110]
		clear(out)
		place := 0
		for ib := range 8 {
			if !wk.fine[ib] {
				continue
			}
			for i := range 8 {
				at := g.number(wk.chosen[32*ib+4*i:])
				out[2+8*place+i] = byte(at)
				out[66+ib] |= byte(at>>8) << i
			}
			for i := range 4 {
				out[74+4*place+i] = wk.signsOf(k, 4*ib+i)
			}
			place++
		}
		if !wk.someScale(8) {
			return
		}
		var codes [8]byte
		le.PutUint16(out, s.half(wk, gridScales(wk.subScales[:8], codes[:])*1.033))
		for i := range 4 {
			out[106+i] = codes[2*i] | codes[2*i+1]<<4
		}
	})
}

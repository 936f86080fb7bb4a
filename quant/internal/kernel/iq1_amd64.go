//go:build !noasm

package kernel

import (
	"math"
	"sync"
)

// iq1Values are the levels −1, 0, 1 shifted by an eighth up and down.
var iq1Values = [2][3]float32{{-0.875, 0.125, 1.125}, {-1.125, -0.125, 0.875}}

// iq1Slots is how many sums a plane has room for; the generator knows it too.
const iq1Slots = 832

// iq1Cuts lists the ways to cut a sorted sub-block in three, in the order in which they
// are tried, as the kernels lay them out in slots.
type iq1Cuts struct {
	i1, i2 [iq1Slots]uint8
	slots  int
	levels []int32 // of iq1m: for each register of cuts, each number's
}

var (
	iq1sCuts = map[int]*iq1Cuts{8: makeIQ1SCuts(8), 16: makeIQ1SCuts(16)}
	iq1mCuts = map[int]*iq1Cuts{8: makeIQ1MCuts(8), 16: makeIQ1MCuts(16)}
)

func makeIQ1SCuts(lanes int) *iq1Cuts {
	c := new(iq1Cuts)
	for i1 := 0; i1 <= 32; i1++ {
		for i2 := i1; i2 <= 32; i2 += lanes {
			for k := range lanes {
				c.i1[c.slots+k], c.i2[c.slots+k] = uint8(i1), uint8(i2+k)
			}
			c.slots += lanes
		}
	}
	return c
}

func makeIQ1MCuts(lanes int) *iq1Cuts {
	c := new(iq1Cuts)
	n := 0
	for i1 := 0; i1 <= 16; i1++ {
		for i2 := i1; i2 <= 16; i2++ {
			c.i1[n], c.i2[n] = uint8(i1), uint8(i2)
			n++
		}
	}
	c.slots = (n + lanes - 1) / lanes * lanes
	for first := 0; first < c.slots; first += lanes {
		for j := range 16 {
			for k := first; k < first+lanes; k++ {
				level := int32(3) // no cut: the tables have NaN there
				if k < n {
					level = int32(iq1Level(j, int(c.i1[k]), int(c.i2[k])))
				}
				c.levels = append(c.levels, level)
			}
		}
	}
	return c
}

// iq1Level is the level of sorted number j.
func iq1Level(j, i1, i2 int) byte {
	switch {
	case j < i1:
		return 0
	case j < i2:
		return 1
	}
	return 2
}

// iq1Work is the scratch of a call.
type iq1Work struct {
	gridWork
	plane         [8 * iq1Slots]float32
	tables        [16 * 8 * maxLanes]float32
	order         [32]uint8
	keys          [32]float32
	sx, sw        [33 + maxLanes]float32
	groups        [16]int64
	values        [2][maxLanes]float32 // iq1Values, then NaN, again and again
	scaled        [maxLanes]float32    // values of one group
	weight, scale float32
	shift         [16]int    // of sub-blocks: the pair of shifts, or +1 and −1
	at            [32]uint32 // grid points of groups
}

var iq1Works = sync.Pool{New: func() any {
	wk := new(iq1Work)
	nan := float32(math.NaN())
	for i := range wk.values[0] {
		for sign := range 2 {
			wk.values[sign][i] = nan
			if i%4 < 3 {
				wk.values[sign][i] = iq1Values[sign][i%4]
			}
		}
	}
	for i := range wk.sx {
		wk.sx[i], wk.sw[i] = nan, nan
	}
	return wk
}}

// sort orders the numbers of x; equal ones keep their order, as with glibc's qsort.
func (wk *iq1Work) sort(x []float32) {
	keys, order := wk.keys[:len(x)], wk.order[:len(x)]
	for i, v := range x {
		j := i
		for ; j > 0 && keys[j-1] > v; j-- {
			keys[j], order[j] = keys[j-1], order[j-1]
		}
		keys[j], order[j] = v, uint8(i)
	}
}

// maxAbs is ggml's MAX over the sizes, from the first.
func maxAbs(x []float32) float32 {
	m := abs(x[0])
	for _, v := range x[1:] {
		if a := abs(v); !(m > a) {
			m = a
		}
	}
	return m
}

// setLevels sets the levels of a cut; flip mirrors them.
func (wk *iq1Work) setLevels(levels []byte, i1, i2 int, flip bool) {
	for j, i := range wk.order[:len(levels)] {
		l := iq1Level(j, i1, i2)
		if flip {
			l = 2 - l
		}
		levels[i] = l
	}
}

// point moves a group onto the grid and returns the point's number and whether it was there.
func (s *Set) point(wk *iq1Work, g *Grid, levels []byte, x, w *float32, scale float32, sign int) (at uint32, on bool) {
	u := g.pack(levels)
	l := g.lists[s.lanes]
	entry := l.entries[u]
	if entry == 0 {
		return uint32(g.index[u]), true
	}
	for i, v := range wk.values[sign] {
		wk.scaled[i] = scale * v
	}
	list := l.near[int(entry>>8)*s.lanes:]
	p := list[s.gridNearest(x, w, &wk.scaled[0], &list[0], int(entry&0xff), &wk.scratch[0])]
	for i := range 8 {
		levels[i] = byte(p >> (2 * i) & 3)
	}
	return uint32(g.index[p]), false
}

// eachIQ1 brings up super-blocks.
func (s *Set) eachIQ1(src []float32, rows, cols int, weights []float32, f func(wk *iq1Work, b int, x, w []float32)) {
	wk := iq1Works.Get().(*iq1Work)
	defer iq1Works.Put(wk)
	s.blocks(&wk.work, src, rows, cols, superBlock, weights, func(first, count int, xp, qp *float32) {
		x := slice(xp, s.lanes*superBlock)
		s.gridWeights(&wk.gridWork, x, qp, count, 2, false)
		for k := range count {
			at := k * superBlock
			f(wk, first+k, x[at:at+superBlock], wk.gridWork.w[at:at+superBlock])
		}
	})
}

// topScale returns the largest of n sub-blocks' scales, from 0.
func (wk *gridWork) topScale(n int) float32 {
	high := float32(0)
	for _, s := range wk.subScales[:n] {
		if s > high {
			high = s
		}
	}
	return high
}

// IQ1S quantizes to iq1_s.
func (s *Set) IQ1S(g *Grid, dst []byte, src []float32, rows, cols int, weights []float32) {
	s.eachIQ1(src, rows, cols, weights, func(wk *iq1Work, b int, x, w []float32) {
		out := dst[50*b : 50*b+50]
		for ib := range 8 {
			s.fitIQ1S(wk, g, ib, x[32*ib:32*ib+32], w[32*ib:32*ib+32])
		}
		clear(out)
		high := wk.topScale(8)
		d, id := high/15, float32(0)
		if high != 0 { // else ggml leaves the indices alone
			le.PutUint16(out, s.half(&wk.gridWork, d*1.125))
			id = 1 / d
		}
		for ib := range 8 {
			l := uint16(0)
			if high != 0 {
				l = uint16(min(max(nearest(float32(0.5*(float32(id*wk.subScales[ib])-1))), 0), 7))
				if wk.shift[ib] < 0 {
					l |= 8
				}
			}
			h := l << 12
			for k, at := range wk.at[4*ib : 4*ib+4] {
				out[2+4*ib+k] = byte(at)
				h |= uint16(at>>8) << (3 * k)
			}
			le.PutUint16(out[34+2*ib:], h)
		}
	})
}

// fitIQ1S sets scale, shift and points of one sub-block.
func (s *Set) fitIQ1S(wk *iq1Work, g *Grid, ib int, x, w []float32) {
	wk.subScales[ib], wk.shift[ib] = 0, 1
	clear(wk.at[4*ib : 4*ib+4])
	if maxAbs(x) < 1e-12 {
		return
	}
	wk.sort(x)
	wk.sx[0], wk.sw[0] = 0, 0
	sx, sw := float32(0), float32(0)
	for j, i := range wk.order {
		v, f := x[i&31], w[i&31]
		sx += float32(f * v)
		sw += f
		wk.sx[j+1], wk.sw[j+1] = sx, sw
	}
	s.iq1s(&wk.plane[0], &wk.sx[0], &wk.sw[0], &iq1Values[0][0])
	cuts := iq1sCuts[s.lanes]
	wk.weight = sw
	pos := s.choose2(&wk.plane[0], cuts.slots, &wk.weight, &wk.scale)
	scale := wk.scale
	if pos < 0 {
		return
	}
	sign := pos & 1
	levels := wk.chosen[:32]
	flip := scale < 0
	wk.setLevels(levels, int(cuts.i1[pos/2]), int(cuts.i2[pos/2]), flip)
	if flip {
		scale, sign = -scale, 1-sign
	}
	wk.shift[ib] = 1 - 2*sign
	all := true
	for k := range 4 {
		var on bool
		wk.at[4*ib+k], on = s.point(wk, g, levels[8*k:8*k+8], &x[8*k], &w[8*k], scale, sign)
		all = all && on
	}
	if !all {
		xx := &wk.values[sign]
		sumqx, sumq2 := float32(0), float32(0)
		for i, v := range x {
			q := xx[levels[i]&3]
			wq := float32(w[i] * q)
			sumqx += float32(wq * v)
			sumq2 += float32(wq * q)
		}
		if sumqx > 0 && sumq2 > 0 {
			scale = sumqx / sumq2
		}
	}
	wk.subScales[ib] = scale
}

// iq1Sign is the shift of a group, 0 up and 1 down, under a pair of shifts.
func iq1Sign(pair, group int) int { return pair >> (1 - group) & 1 }

// IQ1M quantizes to iq1_m.
func (s *Set) IQ1M(g *Grid, dst []byte, src []float32, rows, cols int, weights []float32) {
	s.eachIQ1(src, rows, cols, weights, func(wk *iq1Work, b int, x, w []float32) {
		out := dst[56*b : 56*b+56]
		for ib := range 16 {
			s.fitIQ1M(wk, g, ib, x[16*ib:16*ib+16], w[16*ib:16*ib+16])
		}
		clear(out)
		for i, at := range wk.at {
			out[i] = byte(at)
			out[32+i/2] |= byte(at>>8) << (4 * (i % 2))
		}
		if high := wk.topScale(16); high != 0 { // else ggml leaves the indices alone
			s.finishIQ1M(wk, out, x, w, high)
		}
	})
}

// fitIQ1M sets scale, pair of shifts, levels and points of one sub-block.
func (s *Set) fitIQ1M(wk *iq1Work, g *Grid, ib int, x, w []float32) {
	wk.subScales[ib], wk.shift[ib] = 0, 0
	clear(wk.at[2*ib : 2*ib+2])
	levels := wk.chosen[16*ib : 16*ib+16]
	clear(levels)
	if maxAbs(x) < 1e-7 {
		return
	}
	wk.sort(x)
	wk.weight = 0
	for j, i := range wk.order[:16] {
		wk.sx[j], wk.sw[j] = x[i&15], w[i&15]
		wk.weight += wk.sw[j]
		wk.groups[j] = int64(i >> 3)
	}
	cuts := iq1mCuts[s.lanes]
	s.iq1m(&wk.plane[0], &wk.sx[0], &wk.sw[0], &wk.values[0][0], &wk.tables[0], &wk.groups[0], &cuts.levels[0], cuts.slots/s.lanes)
	pos := s.choose4(&wk.plane[0], cuts.slots, &wk.weight, &wk.scale)
	scale := wk.scale
	if pos < 0 {
		return
	}
	pair := pos & 3
	flip := scale < 0
	wk.setLevels(levels, int(cuts.i1[pos/4]), int(cuts.i2[pos/4]), flip)
	if flip {
		scale, pair = -scale, 3-pair
	}
	wk.shift[ib] = pair
	all := true
	for k := range 2 {
		var on bool
		wk.at[2*ib+k], on = s.point(wk, g, levels[8*k:8*k+8], &x[8*k], &w[8*k], scale, iq1Sign(pair, k))
		all = all && on
	}
	if !all {
		sumqx, sumq2 := float32(0), float32(0)
		for i, v := range x {
			q := wk.values[iq1Sign(pair, i/8)][levels[i]&3]
			wq := float32(w[i] * q)
			sumqx += float32(wq * v)
			sumq2 += float32(wq * q)
		}
		if sumqx > 0 && sumq2 > 0 {
			scale = sumqx / sumq2
		}
	}
	wk.subScales[ib] = scale
}

// finishIQ1M stores scales and shifts and refits the block's scale to what they
// have become.
func (s *Set) finishIQ1M(wk *iq1Work, out []byte, x, w []float32, high float32) {
	d := high / 15
	id := 1 / d
	var words [4]uint16
	sumqx, sumq2 := float32(0), float32(0)
	for ib := range 16 {
		l := min(max(nearest(float32(0.5*(float32(id*wk.subScales[ib])-1))), 0), 7)
		words[ib/4] |= uint16(l) << (3 * (ib % 4))
		for k := range 2 {
			sign := iq1Sign(wk.shift[ib], k)
			out[32+ib] |= byte(sign) << (4*k + 3)
			xx := &wk.values[sign]
			for i := 16*ib + 8*k; i < 16*ib+8*k+8; i++ {
				q := xx[wk.chosen[i]&3] * float32(2*l+1)
				wq := float32(w[i] * q)
				sumqx += float32(wq * x[i])
				sumq2 += float32(wq * q)
			}
		}
	}
	if sumq2 > 0 {
		d = sumqx / sumq2
	}
	h := s.half(&wk.gridWork, d*1.1125)
	for i := range words {
		words[i] |= h >> (4 * i) & 15 << 12
		le.PutUint16(out[48+2*i:], words[i])
	}
}

// FromIQ1S decodes iq1_s; points has 8 levels for each.
func (s *Set) FromIQ1S(points []int8, dst []float32, src []byte) {
	if n := len(dst) / superBlock; n > 0 {
		s.decodeIQ1S(&dst[0], &src[0], n, &points[0])
	}
}

// FromIQ1M decodes iq1_m.
func (s *Set) FromIQ1M(points []int8, dst []float32, src []byte) {
	if n := len(dst) / superBlock; n > 0 {
		s.decodeIQ1M(&dst[0], &src[0], n, &points[0])
	}
}

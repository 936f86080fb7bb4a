package quant

import "slices"

// The types with levels −1, 0, 1, shifted up or down by an eighth, in groups of
// 8 that lie on a grid of 2048 points.

// iq1Delta shifts all levels of a group.
const iq1Delta = 0.125

// iq1Levels are the shifted levels, for shift +1 and −1.
var iq1Levels = [2][3]float32{{-1 + iq1Delta, iq1Delta, 1 + iq1Delta}, {-1 - iq1Delta, -iq1Delta, 1 - iq1Delta}}

// sorted is a sub-block ordered by value.
type sorted struct {
	index [32]int
	n     int
}

// sort orders the indices of x; equal values keep their order, as glibc's qsort does.
func (s *sorted) sort(x []float32) {
	s.n = len(x)
	for i := range x {
		s.index[i] = i
	}
	slices.SortStableFunc(s.index[:s.n], func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
}

// iq1Point moves a group's levels onto the grid, to the neighbour with the least
// weighted error, and reports whether they were there.
func iq1Point(h how, g *grid, levels []uint8, x, w []float32, scale float32, xx *[3]float32) (at uint32, on bool) {
	u := 0
	for i, l := range levels[:8] {
		u |= int(l) << (2 * i)
	}
	p := g.at[u]
	if p >= 0 {
		return uint32(p), true
	}
	list := g.list(p)
	best, found := float32(largest), -1
	for _, c := range list {
		d2 := float32(0)
		for i, q := range g.odd[8*int(c) : 8*int(c)+8] {
			diff := float32(scale*xx[q/2]) - x[i]
			wd := float32(w[i] * diff)
			d2 += float32(wd * diff)
		}
		if d2 < best {
			best, found = d2, int(c)
		}
	}
	if found < 0 { // every distance overflows
		*h.aborts = true
		found = int(list[0])
	}
	for i, q := range g.odd[8*found : 8*found+8] {
		levels[i] = uint8(q / 2)
	}
	return uint32(found), false
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

// split3 sets the levels of a sorted sub-block cut at i1 and i2.
func (s *sorted) split3(levels []uint8, i1, i2 int) {
	for j, at := range s.index[:s.n] {
		switch {
		case j < i1:
			levels[at] = 0
		case j < i2:
			levels[at] = 1
		default:
			levels[at] = 2
		}
	}
}

func quantizeIQ1_S(dst []byte, src, qw []float32, h how) {
	g := gridIQ1()
	var w [32]float32
	for b := range len(src) / superBlock {
		x, out := src[b*superBlock:(b+1)*superBlock], dst[50*b:50*b+50]
		weights := part(qw, b)
		clear(out)
		sigma2 := 2 * sumSquares(x) / superBlock
		var scales [8]float32
		var shifts [8]int
		var qh [8]uint16
		for ib := range 8 {
			sub := x[32*ib : 32*ib+32]
			imatrixWeights(w[:], weights[32*ib:], sub, sigma2)
			scale, shift, levels, ok := fitIQ1S(sub, w[:])
			shifts[ib] = shift
			if !ok {
				continue
			}
			xx := &iq1Levels[0]
			if shift < 0 {
				xx = &iq1Levels[1]
			}
			var at [4]uint32
			allOn := true
			for k := range 4 {
				var on bool
				at[k], on = iq1Point(h, g, levels[8*k:], sub[8*k:], w[8*k:], scale, xx)
				allOn = allOn && on
			}
			if !allOn {
				sumqx, sumq2 := float32(0), float32(0)
				for i, v := range sub {
					q := xx[levels[i]]
					wq := float32(w[i] * q)
					sumqx += float32(wq * v)
					sumq2 += float32(wq * q)
				}
				if sumqx > 0 && sumq2 > 0 {
					scale = sumqx / sumq2
				}
			}
			for k := range 4 {
				out[2+4*ib+k] = byte(at[k])
				qh[ib] |= uint16(at[k]>>8) << (3 * k)
			}
			scales[ib] = scale
		}
		high := top(scales[:])
		if high == 0 { // indices stay
			for ib, v := range qh {
				le.PutUint16(out[34+2*ib:], v)
			}
			continue
		}
		d := high / 15
		putF16(out, float32(d*1.125))
		id := 1 / d
		for ib, s := range scales {
			l := uint16(clamp(nearest(float32(0.5*(float32(id*s)-1))), 0, 7))
			if shifts[ib] < 0 {
				l |= 8
			}
			le.PutUint16(out[34+2*ib:], qh[ib]|l<<12)
		}
	}
}

// fitIQ1S tries every way to cut the sorted sub-block in three.
func fitIQ1S(x, w []float32) (scale float32, shift int, levels [32]uint8, ok bool) {
	high := maxAbs(x)
	if high < 1e-12 {
		return 0, 1, levels, false
	}
	var order sorted
	order.sort(x)
	var sumx, sumw [33]float32
	for j, at := range order.index[:32] {
		sumx[j+1] = sumx[j] + float32(w[at]*x[at])
		sumw[j+1] = sumw[j] + w[at]
	}
	best, scale := float32(-largest), high
	cut1, cut2 := -1, -1
	for i1 := range 33 {
		for i2 := i1; i2 <= 32; i2++ {
			for sign := range iq1Levels {
				xx := &iq1Levels[sign]
				dx := [3]float32{sumx[i1] - sumx[0], sumx[i2] - sumx[i1], sumx[32] - sumx[i2]}
				dw := [3]float32{sumw[i1] - sumw[0], sumw[i2] - sumw[i1], sumw[32] - sumw[i2]}
				sumqx := float32(dx[0]*xx[0]) + float32(dx[1]*xx[1]) + float32(dx[2]*xx[2])
				sumq2 := float32(float32(dw[0]*xx[0])*xx[0]) + float32(float32(dw[1]*xx[1])*xx[1]) + float32(float32(dw[2]*xx[2])*xx[2])
				if sumq2 > 0 && float32(sumqx*sumqx) > float32(best*sumq2) {
					scale = sumqx / sumq2
					best = float32(scale * sumqx)
					cut1, cut2, shift = i1, i2, 1-2*sign
				}
			}
		}
	}
	if cut1 < 0 {
		return 0, 1, levels, false
	}
	order.split3(levels[:], cut1, cut2)
	if scale < 0 {
		for j := range levels {
			levels[j] = 2 - levels[j]
		}
		scale, shift = -scale, -shift
	}
	return scale, shift, levels, true
}

// iq1mSums are Σ w·q·x and Σ w·q² for the four pairs of shifts of the two groups.
type iq1mSums struct{ qx, q2 [4]float32 }

// add takes one element at one of the three levels; group is 0 or 1.
func (s *iq1mSums) add(w, x float32, level, group int) {
	var qx, q2 [2]float32
	for sign := range qx {
		xq := iq1Levels[sign][level]
		wq := float32(w * xq)
		qx[sign], q2[sign] = float32(wq*x), float32(wq*xq)
	}
	for k := range 4 {
		sign := k >> 1
		if group == 1 {
			sign = k & 1
		}
		s.qx[k] += qx[sign]
		s.q2[k] += q2[sign]
	}
}

// fitIQ1M tries every cut with every pair of shifts. k is the best pair.
func fitIQ1M(x, w []float32) (scale float32, k int, levels [16]uint8, ok bool) {
	high := maxAbs(x)
	if high < 1e-7 {
		return 0, 0, levels, false
	}
	var order sorted
	order.sort(x)
	best, scale := float32(-largest), high
	cut1, cut2, bestK := -1, -1, -1
	// Sums run in sorted order, so that states are shared: low is after i1
	// elements, mid after i2.
	var low iq1mSums
	for i1 := range 17 {
		if i1 > 0 {
			at := order.index[i1-1]
			low.add(w[at], x[at], 0, at/8)
		}
		mid := low
		for i2 := i1; i2 <= 16; i2++ {
			if i2 > i1 {
				at := order.index[i2-1]
				mid.add(w[at], x[at], 1, at/8)
			}
			s := mid
			for _, at := range order.index[i2:16] {
				s.add(w[at], x[at], 2, at/8)
			}
			for c := range 4 {
				if s.q2[c] > 0 && float32(s.qx[c]*s.qx[c]) > float32(best*s.q2[c]) {
					scale = s.qx[c] / s.q2[c]
					best = float32(scale * s.qx[c])
					cut1, cut2, bestK = i1, i2, c
				}
			}
		}
	}
	if cut1 < 0 {
		return 0, 0, levels, false
	}
	order.split3(levels[:], cut1, cut2)
	if scale < 0 {
		for j := range levels {
			levels[j] = 2 - levels[j]
		}
		scale, bestK = -scale, 3-bestK
	}
	return scale, bestK, levels, true
}

// pairLevels returns the levels of a group under a pair of shifts.
func pairLevels(k, group int) *[3]float32 {
	if group == 0 {
		return &iq1Levels[k>>1]
	}
	return &iq1Levels[k&1]
}

func quantizeIQ1_M(dst []byte, src, qw []float32, h how) {
	g := gridIQ1()
	var w [superBlock]float32
	for b := range len(src) / superBlock {
		x, out := src[b*superBlock:(b+1)*superBlock], dst[56*b:56*b+56]
		clear(out)
		if weights := part(qw, b); weights != nil {
			imatrixWeights(w[:], weights, x, 2*sumSquares(x)/superBlock)
		} else {
			squares(w[:], x)
		}
		var scales [16]float32
		var pairs [16]int
		var all [superBlock]uint8
		for ib := range 16 {
			sub, sw := x[16*ib:16*ib+16], w[16*ib:16*ib+16]
			scale, k, levels, ok := fitIQ1M(sub, sw)
			pairs[ib] = k
			if !ok {
				continue
			}
			allOn := true
			for group := range 2 {
				at, on := iq1Point(h, g, levels[8*group:], sub[8*group:], sw[8*group:], scale, pairLevels(k, group))
				allOn = allOn && on
				out[2*ib+group] = byte(at)
				out[32+ib] |= byte(at>>8) << (4 * group)
			}
			if !allOn {
				sumqx, sumq2 := float32(0), float32(0)
				for i, v := range sub {
					q := pairLevels(k, i/8)[levels[i]]
					wq := float32(sw[i] * q)
					sumqx += float32(wq * v)
					sumq2 += float32(wq * q)
				}
				if sumqx > 0 && sumq2 > 0 {
					scale = sumqx / sumq2
				}
			}
			copy(all[16*ib:], levels[:])
			scales[ib] = scale
		}
		high := top(scales[:])
		if high == 0 { // indices stay
			continue
		}
		finishIQ1M(out, x, w[:], &scales, &pairs, &all, high)
	}
}

// finishIQ1M stores scales and shifts and refits the block's scale to what they
// have become.
func finishIQ1M(out []byte, x, w []float32, scales *[16]float32, pairs *[16]int, levels *[superBlock]uint8, high float32) {
	d := high / 15
	id := 1 / d
	var words [4]uint16
	sumqx, sumq2 := float32(0), float32(0)
	masks := [4]byte{0, 0x80, 0x08, 0x88}
	for ib, s := range scales {
		l := clamp(nearest(float32(0.5*(float32(id*s)-1))), 0, 7)
		words[ib/4] |= uint16(l) << (3 * (ib % 4))
		out[32+ib] |= masks[pairs[ib]]
		for i := 16 * ib; i < 16*ib+16; i++ {
			q := pairLevels(pairs[ib], i%16/8)[levels[i]] * float32(2*l+1)
			wq := float32(w[i] * q)
			sumqx += float32(wq * x[i])
			sumq2 += float32(wq * q)
		}
	}
	if sumq2 > 0 {
		d = sumqx / sumq2
	}
	h := toF16(float32(d * 1.1125))
	for i := range words {
		words[i] |= h >> (4 * i) & 15 << 12
		le.PutUint16(out[48+2*i:], words[i])
	}
}

// scaleIQ1M collects a block's scale, in f16, from the tops of four words.
func scaleIQ1M(block []byte) uint16 {
	h := uint16(0)
	for i := range 4 {
		h |= le.Uint16(block[48+2*i:]) >> 12 << (4 * i)
	}
	return h
}

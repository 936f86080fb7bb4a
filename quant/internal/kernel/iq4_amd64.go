//go:build !noasm

package kernel

import "math"

// iq4Values are the levels of iq4_nl and iq4_xs (ggml-common.h, kvalues_iq4nl).
var iq4Values = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// iq4Steps are the numerators of the scales tried after the first.
var iq4Steps = func() (steps []float32) {
	for i := -7; i <= 7; i++ {
		steps = append(steps, float32(i-127))
	}
	return steps
}()

// iq4Tables serve the lookup of the nearest value, for 8 and 16 lanes: values
// has them as floats, codes as integers in the bits.
//
// For 8 lanes entry i is for x from i/2−127 up to the next half.
// For 16 lanes there are three tables of 32 entries, at the multiple of 8 nearest
// to x, modulo 32: the point between two values that is at most 4 away, and the
// value below and the value above it. No such point is near the border of two entries.
type iq4Tables struct{ values, codes []float32 }

var iq4Lookup = map[int]iq4Tables{8: makeIQ4Tables8(), 16: makeIQ4Tables16()}

// iq4Code returns the code of the value nearest to x, the upper of two.
func iq4Code(x float32) int {
	code := 0
	for i := 1; i < 16; i++ {
		if x >= (iq4Values[i-1]+iq4Values[i])/2 {
			code = i
		}
	}
	return code
}

func (t *iq4Tables) add(code int) {
	t.values = append(t.values, iq4Values[code])
	t.codes = append(t.codes, math.Float32frombits(uint32(code)))
}

func makeIQ4Tables8() (t iq4Tables) {
	for i := range 481 {
		t.add(iq4Code(float32(i)/2 - 127))
	}
	return t
}

func makeIQ4Tables16() (t iq4Tables) {
	centre := func(i int) float32 { return float32((i+16)%32-16) * 8 }
	for i := range 32 {
		border := float32(math.Inf(1))
		for k := 1; k < 16; k++ {
			if mid := (iq4Values[k-1] + iq4Values[k]) / 2; abs(mid-centre(i)) < 4 {
				border = mid
			}
		}
		t.values, t.codes = append(t.values, border), append(t.codes, border)
	}
	for i := range 32 {
		t.add(iq4Code(centre(i) - 4))
	}
	for i := range 32 {
		t.add(iq4Code(centre(i) + 4))
	}
	return t
}

// iq4Weights brings n numbers of each lane's block and their weights into lanes.
func (s *Set) iq4Weights(wk *work, n int, x, qw *float32) {
	s.transpose(&wk.x[0], x, 4*n, n)
	clear(wk.base[:])
	if qw == nil {
		s.squareWeights(&wk.w[0], &wk.x[0], n, &wk.base[0])
		return
	}
	s.transpose(&wk.w[0], qw, 4*n, n)
	s.sumSquares(&wk.base[0], &wk.x[0], n)
	for k := range wk.base[:s.lanes] {
		wk.base[k] *= 2 / float32(n)
	}
	s.rootWeights(&wk.w[0], &wk.x[0], n, &wk.base[0])
}

// IQ4NL quantizes to iq4_nl.
func (s *Set) IQ4NL(dst []byte, src []float32, rows, cols int, weights []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	tables := iq4Lookup[s.lanes]
	s.blocks(wk, src, rows, cols, 32, weights, func(first, count int, x, qw *float32) {
		s.iq4Weights(wk, 32, x, qw)
		s.iq4(&wk.x[0], &wk.w[0], 32, &wk.d[0], &iq4Steps[0], len(iq4Steps), &tables.values[0])
		for k, d := range wk.d[:s.lanes] {
			wk.m[k] = inverse(d)
		}
		s.iq4Levels(&wk.x[0], 32, &wk.levels[0], &wk.m[0], &tables.codes[0])
		s.toHalf(&wk.halfD[0], &wk.d[0], s.lanes)
		s.gather(&wk.bytes[0], &wk.levels[0], 32, 32)
		for k := range count {
			out := dst[18*(first+k) : 18*(first+k)+18]
			le.PutUint16(out, wk.halfD[k])
			nibbles(out[2:], wk.bytes[32*k:32*k+32])
		}
	})
}

// IQ4XS quantizes to iq4_xs.
func (s *Set) IQ4XS(dst []byte, src []float32, rows, cols int, weights []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	tables := iq4Lookup[v]
	s.blocks(wk, src, rows, cols, superBlock, weights, func(first, count int, x, qw *float32) {
		s.iq4Weights(wk, superBlock, x, qw)
		for j := range 8 {
			at := 32 * j * v
			s.iq4(&wk.x[at], &wk.w[at], 32, &wk.scales[j*v], &iq4Steps[0], len(iq4Steps), &tables.values[0])
		}
		for k := range v {
			d := -s.farthest(wk.scales[:], 8, k) / 32
			wk.d[k] = d
			id := inverse(d)
			for j := range 8 {
				l := min(max(nearest(id*wk.scales[j*v+k]), -32), 31)
				wk.stepsL[j*v+k] = l + 32
				wk.dj[j*v+k] = inverse(d * float32(l))
			}
		}
		for j := range 8 {
			at := 32 * j * v
			s.iq4Levels(&wk.x[at], 32, &wk.levels[at], &wk.dj[j*v], &tables.codes[0])
		}
		s.toHalf(&wk.halfD[0], &wk.d[0], v)
		s.gather(&wk.bytes[0], &wk.levels[0], superBlock, superBlock)
		for k := range count {
			out := dst[136*(first+k) : 136*(first+k)+136]
			le.PutUint16(out, wk.halfD[k])
			high := uint16(0)
			clear(out[4:8])
			for j := range 8 {
				l := wk.stepsL[j*v+k]
				out[4+j/2] |= byte(l&15) << (j % 2 * 4)
				high |= uint16(l>>4) << (2 * j)
				nibbles(out[8+16*j:], wk.bytes[superBlock*k+32*j:])
			}
			le.PutUint16(out[2:], high)
		}
	})
}

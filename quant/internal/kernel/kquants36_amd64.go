//go:build !noasm

package kernel

var (
	q3First, q3Second = signedSteps(4), signedSteps(32)
	q3Bounds          = levelBounds(-4, 3)
	q6Bounds          = levelBounds(-32, 31)
)

// superWeights brings the weights of super-blocks into lanes: those of the
// imatrix, with the mean square counted so many times, or the squares of x.
func (s *Set) superWeights(wk *work, qw *float32, sigma float32) {
	clear(wk.base[:])
	if qw == nil {
		s.squareWeights(&wk.w[0], &wk.x[0], superBlock, &wk.base[0])
		return
	}
	s.transpose(&wk.w[0], qw, 4*superBlock, superBlock)
	s.sumSquares(&wk.base[0], &wk.x[0], superBlock)
	for k := range wk.base[:s.lanes] {
		wk.base[k] = sigma * wk.base[k] / superBlock
	}
	s.rootWeights(&wk.w[0], &wk.x[0], superBlock, &wk.base[0])
}

// farthest returns the one of n scales of lane k with the strictly largest size.
func (s *Set) farthest(scales []float32, n, k int) float32 {
	m, amax := float32(0), float32(0)
	for j := range n {
		v := scales[j*s.lanes+k]
		if a := abs(v); a > amax {
			amax, m = a, v
		}
	}
	return m
}

// Q3K quantizes to q3_K.
func (s *Set) Q3K(dst []byte, src []float32, rows, cols int, weights []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	s.blocks(wk, src, rows, cols, superBlock, weights, func(first, count int, x, qw *float32) {
		s.transpose(&wk.x[0], x, 4*superBlock, superBlock)
		if qw != nil {
			s.superWeights(wk, qw, 2)
			for j := range 16 {
				at := 16 * j * v
				s.sum(&wk.sums[j*v], &wk.w[at], 16)
				s.qx(&wk.x[at], &wk.w[at], 16, &wk.levels[at], &wk.scales[j*v], &q3First[0], 18)
			}
			s.qxAny(&wk.scales[0], &wk.sums[0], 16, &wk.stepsL[0], &wk.d[0], &q3Second[0], 18)
		} else {
			for j := range 16 {
				at := 16 * j * v
				s.q3(&wk.x[at], 16, &wk.trial[0], &wk.levels[at], &wk.scales[j*v])
			}
			s.plainSigned(wk)
		}
		s.roundHalves(wk)
		for j := range 16 {
			for k := range v {
				wk.dj[j*v+k] = wk.d[k] * float32(wk.stepsL[j*v+k]-32)
			}
		}
		clear(wk.mj[:])
		s.finish(wk, 16, &q3Bounds)
		for k := range count {
			out := dst[110*(first+k) : 110*(first+k)+110]
			packQ3K(out, wk.bytes[superBlock*k:superBlock*(k+1)])
			packed := out[96:108]
			clear(packed)
			for j := range 16 {
				b := byte(wk.stepsL[j*v+k])
				packed[j%8] |= b & 15 << (j / 8 * 4)
				packed[8+j%4] |= b >> 4 << (j / 4 * 2)
			}
			le.PutUint16(out[108:], wk.halfD[k])
		}
	})
}

// plainSigned quantizes the sixteen scales of each lane to six bits around 32.
func (s *Set) plainSigned(wk *work) {
	v := s.lanes
	for k := range v {
		high := s.farthest(wk.scales[:], 16, k)
		wk.d[k] = 0
		inv := float32(0)
		if high != 0 {
			inv = -32 / high
			wk.d[k] = 1 / inv
		}
		for j := range 16 {
			l := int32(0)
			if high != 0 {
				l = min(max(int32(int8(nearest(inv*wk.scales[j*v+k]))), -32), 31) + 32
			}
			wk.stepsL[j*v+k] = l
		}
	}
}

// packQ3K packs levels 0..7: their third bits, then the others.
func packQ3K(out, q []byte) {
	for l := 0; l < 32; l += 8 {
		high := uint64(0)
		for g := range 8 {
			high |= le.Uint64(q[32*g+l:]) >> 2 & low1 << g
		}
		le.PutUint64(out[l:], high)
	}
	const low2 = 0x0303030303030303
	for i := 0; i < 64; i += 8 {
		at := q[i/32*128+i%32:]
		le.PutUint64(out[32+i:], le.Uint64(at)&low2|le.Uint64(at[32:])&low2<<2|le.Uint64(at[64:])&low2<<4|le.Uint64(at[96:])&low2<<6)
	}
}

// Q6K quantizes to q6_K.
func (s *Set) Q6K(dst []byte, src []float32, rows, cols int, weights []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	s.blocks(wk, src, rows, cols, superBlock, weights, func(first, count int, x, qw *float32) {
		s.transpose(&wk.x[0], x, 4*superBlock, superBlock)
		if qw != nil {
			s.transpose(&wk.w[0], qw, 4*superBlock, superBlock)
		} else {
			s.superWeights(wk, nil, 0)
		}
		for j := range 16 {
			at := 16 * j * v
			s.qx(&wk.x[at], &wk.w[at], 16, &wk.levels[at], &wk.scales[j*v], &q3Second[0], 18)
		}
		var zero [maxLanes]bool
		for k := range v {
			high := s.farthest(wk.scales[:], 16, k)
			zero[k] = abs(high) < 1e-15
			inv := -128 / high
			wk.d[k] = 1 / inv
			for j := range 16 {
				wk.stepsL[j*v+k] = int32(int8(min(127, nearest(inv*wk.scales[j*v+k]))))
			}
		}
		s.roundHalves(wk)
		for j := range 16 {
			for k := range v {
				wk.dj[j*v+k] = wk.d[k] * float32(wk.stepsL[j*v+k])
			}
		}
		clear(wk.mj[:])
		s.finish(wk, 16, &q6Bounds)
		for k := range count {
			out := dst[210*(first+k) : 210*(first+k)+210]
			if zero[k] {
				clear(out)
				continue
			}
			packQ6K(out, wk.bytes[superBlock*k:superBlock*(k+1)])
			for j := range 16 {
				out[192+j] = byte(wk.stepsL[j*v+k])
			}
			le.PutUint16(out[208:], wk.halfD[k])
		}
	})
}

// packQ6K packs levels of 6 bits.
func packQ6K(out, q []byte) {
	for half := range 2 {
		q, low, high := q[128*half:], out[64*half:], out[128+32*half:]
		for l := 0; l < 32; l += 8 {
			a, b, c, e := le.Uint64(q[l:]), le.Uint64(q[l+32:]), le.Uint64(q[l+64:]), le.Uint64(q[l+96:])
			le.PutUint64(low[l:], a&low4|c&low4<<4)
			le.PutUint64(low[l+32:], b&low4|e&low4<<4)
			le.PutUint64(high[l:], a>>4&low4|b>>4&low4<<2|c>>4&low4<<4|e>>4&low4<<6)
		}
	}
}

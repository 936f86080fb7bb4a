//go:build !noasm

package kernel

// Blocks of 32 with one scale, and a minimum for the "_1" types.

var (
	q40Steps, q50Steps = signedSteps(8), signedSteps(16)
	q41Steps, q51Steps = rangeSteps(15, -0.9, 0.05, 36), rangeSteps(31, -0.9, 0.05, 36)
)

// limit is what is added before a level is cut to an integer, and the highest level.
type limit struct {
	offset float32
	most   int32
}

// limits are by nmax; ggml does not limit the levels of q5_1.
var limits = map[int]*limit{8: {8.5, 15}, 16: {16.5, 31}, 15: {0.5, 15}, 31: {0.5, 255}}

// rowMeans sets rowSums to the mean square of every row, added in column order.
func (s *Set) rowMeans(wk *work, src []float32, rows, cols int) {
	wk.rowSums = append(wk.rowSums[:0], make([]float32, rows+maxLanes)...)
	v := s.lanes
	r := 0
	for ; r+v <= rows; r += v {
		for c := 0; c < cols; c += superBlock {
			n := min(superBlock, cols-c)
			s.transpose(&wk.x[0], &src[r*cols+c], 4*cols, n)
			s.sumSquares(&wk.rowSums[r], &wk.x[0], n)
		}
	}
	for ; r < rows; r++ {
		sum := float32(0)
		for _, f := range src[r*cols : (r+1)*cols] {
			sum += float32(f * f)
		}
		wk.rowSums[r] = sum
	}
	for r := range wk.rowSums[:rows] {
		wk.rowSums[r] /= float32(cols)
	}
}

// weigh32 brings blocks of 32 and their weights into lanes, in place p.
func (s *Set) weigh32(wk *work, p, first, count, cols int, x, qw *float32) {
	at := p * s.lanes * 32
	s.transpose(&wk.x[at], x, 4*32, 32)
	s.transpose(&wk.w[at], qw, 4*32, 32)
	clear(wk.base[:])
	count = max(0, min(count, s.lanes))
	for k := range count {
		wk.base[k] = wk.rowSums[(first+k)*32/cols]
	}
	s.rootWeights(&wk.w[at], &wk.x[at], 32, &wk.base[0])
}

// nibbles packs 32 levels: element j in the low half of byte j, j+16 in the high.
func nibbles(dst, q []byte) {
	le.PutUint64(dst, le.Uint64(q)&low4|le.Uint64(q[16:])&low4<<4)
	le.PutUint64(dst[8:], le.Uint64(q[8:])&low4|le.Uint64(q[24:])&low4<<4)
}

// fifthBits packs bit 4 of 32 levels, element j in bit j.
func fifthBits(q []byte) (h uint32) {
	for i := range 4 {
		// The product moves bit 0 of byte j to bit 56+j.
		h |= uint32(le.Uint64(q[8*i:])>>4&low1*0x0102040810204080>>56) << (8 * i)
	}
	return h
}

// signed is q4_0 (nmax 8) and q5_0 (nmax 16).
func (s *Set) signed(dst []byte, src []float32, rows, cols int, weights []float32, nmax int, steps []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	if weights != nil {
		s.rowMeans(wk, src, rows, cols)
	}
	v, size := s.lanes, 18
	if nmax == 16 {
		size = 22
	}
	lim := limits[nmax]
	s.blocks(wk, src, rows, cols, 32, weights, func(first, count int, x, qw *float32) {
		if qw != nil {
			s.weigh32(wk, 0, first, count, cols, x, qw)
			s.qx(&wk.x[0], &wk.w[0], 32, &wk.levels[0], &wk.d[0], &steps[0], 18)
		} else {
			s.transpose(&wk.x[0], x, 4*32, 32)
			s.extremes(&wk.fit[0], &wk.x[0], 32)
			for k, top := range wk.fit[:v] {
				wk.d[k] = top / float32(-nmax)
				wk.m[k] = inverse(wk.d[k])
			}
			clear(wk.base[:])
			s.affine(&wk.x[0], 32, &wk.levels[0], &wk.base[0], &wk.m[0], &lim.offset, &lim.most)
		}
		s.toHalf(&wk.halfD[0], &wk.d[0], v)
		s.gather(&wk.bytes[0], &wk.levels[0], 32, 32)
		for k := range count {
			out, q := dst[size*(first+k):size*(first+k)+size], wk.bytes[32*k:32*k+32]
			le.PutUint16(out, wk.halfD[k])
			if nmax == 16 {
				le.PutUint32(out[2:], fifthBits(q))
				out = out[4:]
			}
			nibbles(out[2:], q)
		}
	})
}

// Q40 quantizes to q4_0.
func (s *Set) Q40(dst []byte, src []float32, rows, cols int, weights []float32) {
	s.signed(dst, src, rows, cols, weights, 8, q40Steps)
}

// Q50 quantizes to q5_0.
func (s *Set) Q50(dst []byte, src []float32, rows, cols int, weights []float32) {
	s.signed(dst, src, rows, cols, weights, 16, q50Steps)
}

// ranged is q4_1 (nmax 15) and q5_1 (nmax 31), two blocks in each lane.
func (s *Set) ranged(dst []byte, src []float32, rows, cols int, weights []float32, nmax int, steps []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	if weights != nil {
		s.rowMeans(wk, src, rows, cols)
	}
	v, size, lim := s.lanes, 20, limits[nmax]
	if nmax == 31 {
		size = 24
	}
	wk.blocks(2*v, src, rows, cols, 32, weights, func(first, count int, x, qw *float32) {
		both := slice(x, 2*v*32)
		if qw != nil {
			weights := slice(qw, 2*v*32)
			for p := range 2 {
				s.weigh32(wk, p, first+p*v, count-p*v, cols, &both[p*v*32], &weights[p*v*32])
			}
			s.qkx(&wk.x[0], &wk.w[0], 32, &wk.trial[0], &wk.levels[0], &wk.state[0], &steps[0], len(steps)-2)
			for p := range 2 {
				state := wk.state[p*qkxState*v:]
				copy(wk.scales[p*v:], state[:v])
				copy(wk.mins[p*v:], state[v:2*v])
			}
		} else {
			for p := range 2 {
				at := p * v * 32
				s.transpose(&wk.x[at], &both[at], 4*32, 32)
				s.plainRange(wk, p, nmax, lim, at)
			}
		}
		for p := range 2 {
			s.toHalf(&wk.halfD[0], &wk.scales[p*v], v)
			s.toHalf(&wk.halfM[0], &wk.mins[p*v], v)
			s.gather(&wk.bytes[0], &wk.levels[p*v*32], 32, 32)
			for k := range min(v, count-p*v) {
				b := first + p*v + k
				out, q := dst[size*b:size*b+size], wk.bytes[32*k:32*k+32]
				le.PutUint16(out, wk.halfD[k])
				le.PutUint16(out[2:], wk.halfM[k])
				if nmax == 31 {
					le.PutUint32(out[4:], fifthBits(q))
					out = out[4:]
				}
				nibbles(out[4:], q)
			}
		}
	})
}

// plainRange finds scales, mins and levels of the blocks at x[at] without weights.
func (s *Set) plainRange(wk *work, p, nmax int, lim *limit, at int) {
	v := s.lanes
	s.extremes(&wk.fit[0], &wk.x[at], 32)
	for k := range v {
		low, high := wk.fit[2*v+k], wk.fit[3*v+k]
		d := (high - low) / float32(nmax)
		wk.scales[p*v+k], wk.mins[p*v+k] = d, low
		wk.base[k] = inverse(d)
	}
	s.affine(&wk.x[at], 32, &wk.levels[at], &wk.mins[p*v], &wk.base[0], &lim.offset, &lim.most)
}

// Q41 quantizes to q4_1.
func (s *Set) Q41(dst []byte, src []float32, rows, cols int, weights []float32) {
	s.ranged(dst, src, rows, cols, weights, 15, q41Steps)
}

// Q51 quantizes to q5_1.
func (s *Set) Q51(dst []byte, src []float32, rows, cols int, weights []float32) {
	s.ranged(dst, src, rows, cols, weights, 31, q51Steps)
}

// Q80 quantizes to q8_0.
func (s *Set) Q80(dst []byte, src []float32, rows, cols int, _ []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	s.blocks(wk, src, rows, cols, 32, nil, func(first, count int, x, _ *float32) {
		s.transpose(&wk.x[0], x, 4*32, 32)
		s.extremes(&wk.fit[0], &wk.x[0], 32)
		for k, amax := range wk.fit[v : 2*v] {
			wk.d[k] = amax / 127
			wk.m[k] = inverse(wk.d[k])
		}
		s.rounded(&wk.x[0], 32, &wk.levels[0], &wk.m[0])
		s.toHalf(&wk.halfD[0], &wk.d[0], v)
		s.gather(&wk.bytes[0], &wk.levels[0], 32, 32)
		for k := range count {
			out := dst[34*(first+k) : 34*(first+k)+34]
			le.PutUint16(out, wk.halfD[k])
			copy(out[2:], wk.bytes[32*k:32*k+32])
		}
	})
}

func inverse(d float32) float32 {
	if d != 0 {
		return 1 / d
	}
	return 0
}

//go:build !noasm

package kernel

import "math"

// fp4Mids are pairs: the point half way between two values of the 4-bit float,
// doubled as ggml has them, and the upper value.
var fp4Mids = [14]float32{0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12}

// fp4Levels brings the codes of n numbers of each lane into rows; the scales are
// register 0 of fit.
func (s *Set) fp4Levels(wk *work, n int) {
	s.fp4(&wk.x[0], n, &wk.levels[0], &wk.fit[0], &fp4Mids[0], 7)
	s.gather(&wk.bytes[0], &wk.levels[0], n, n)
}

// floorLog2 is the whole part of the C library's log2f, which just below a power of
// two rounds up to it: the nearest 44 numbers at most (checked for every exponent).
func floorLog2(x float32) int32 {
	bits := math.Float32bits(x)
	if bits&0x007fff00 != 0x007fff00 { // not just below a power of two
		if e := int32(bits >> 23); e > 0 {
			return e - 127
		}
	}
	return int32(math.Floor(float64(float32(math.Log2(float64(x))))))
}

// MXFP4 quantizes to mxfp4.
func (s *Set) MXFP4(dst []byte, src []float32, rows, cols int, _ []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	s.blocks(wk, src, rows, cols, 32, nil, func(first, count int, x, _ *float32) {
		s.transpose(&wk.x[0], x, 4*32, 32)
		s.extremes(&wk.fit[0], &wk.x[0], 32)
		var codes [maxLanes]byte
		for k := range v {
			e := byte(0)
			if amax := wk.fit[v+k]; amax > 0 {
				e = byte(floorLog2(amax) - 2 + 127)
			}
			codes[k] = e
			if e < 2 {
				wk.fit[k] = math.Float32frombits(0x00200000 << e)
			} else {
				wk.fit[k] = math.Float32frombits(uint32(e-1) << 23)
			}
		}
		s.fp4Levels(wk, 32)
		for k := range count {
			out := dst[17*(first+k) : 17*(first+k)+17]
			out[0] = codes[k]
			nibbles(out[1:], wk.bytes[32*k:32*k+32])
		}
	})
}

// toUE4M3 is quant's: a positive number as the unsigned 8-bit float of nvfp4.
func toUE4M3(x float32) byte {
	if !(x > 0) {
		return 0
	}
	if x > 448 {
		x = 448
	}
	bits := math.Float32bits(x)
	e, m := int32(bits>>23&0xff)-127+7, int32(bits>>20&7)
	if e <= 0 {
		return byte(min(int32(float32(x*512)+0.5), 7))
	}
	if e >= 15 {
		return 0x7e
	}
	m += int32(bits >> 19 & 1)
	if m > 7 {
		m = 0
		e++
	}
	if e >= 15 {
		return 0x7e
	}
	return byte(e<<3 | m)
}

// halfUE4M3 is half the value of a code.
var halfUE4M3 = func() (t [128]float32) {
	for c := range uint32(128) {
		e, m := c>>3, c&7
		if e == 0 {
			t[c] = float32(m) * (1.0 / 512) * 0.5
		} else {
			t[c] = (1 + float32(m)/8) * math.Float32frombits((e+127-7)<<23) * 0.5
		}
	}
	return t
}()

// fp4Values are the 4-bit floats, doubled (ggml-common.h, kvalues_mxfp4).
var fp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// farLevels compares all distances as ggml does: from numbers that are much larger
// than any value they round to the same, and the first of equal ones is taken.
func farLevels(levels []byte, x []float32, d float32) {
	for i, v := range x {
		best, at := abs(float32(fp4Values[0]*d)-v), byte(0)
		for c, f := range fp4Values {
			if e := abs(float32(f*d) - v); e < best {
				best, at = e, byte(c)
			}
		}
		levels[i] = at
	}
}

// NVFP4 quantizes to nvfp4.
func (s *Set) NVFP4(dst []byte, src []float32, rows, cols int, _ []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	// A lane has a sub-block of 16, four of which are a block.
	s.blocks(wk, src, rows, cols, 16, nil, func(first, count int, x, _ *float32) {
		s.transpose(&wk.x[0], x, 4*16, 16)
		s.extremes(&wk.fit[0], &wk.x[0], 16)
		var codes [maxLanes]byte
		var far [maxLanes]float32 // scales that are too small by far, as they end at 448
		for k := range v {
			codes[k] = toUE4M3(wk.fit[v+k] / 6)
			d := halfUE4M3[codes[k]]
			if wk.fit[v+k] > 4096*d {
				far[k] = d
			}
			wk.fit[k] = d
		}
		s.fp4Levels(wk, 16)
		for k, d := range far {
			if d != 0 {
				farLevels(wk.bytes[16*k:16*k+16], slice(x, 16*(k+1))[16*k:], d)
			}
		}
		for k := range count {
			out, sub := dst[36*((first+k)/4):], (first+k)%4
			q := wk.bytes[16*k : 16*k+16]
			out[sub] = codes[k]
			le.PutUint64(out[4+8*sub:], le.Uint64(q)|le.Uint64(q[8:])<<4)
		}
	})
}

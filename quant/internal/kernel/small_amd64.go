//go:build !noasm

package kernel

import "math"

// Types of one to two bits without a search.

// ternary brings digits 0, 1, 2 of super-blocks into rows, and d.
func (s *Set) ternary(wk *work, x *float32) {
	v := s.lanes
	s.transpose(&wk.x[0], x, 4*superBlock, superBlock)
	s.extremes(&wk.fit[0], &wk.x[0], superBlock)
	for k, amax := range wk.fit[v : 2*v] {
		wk.d[k], wk.m[k] = amax, inverse(amax)
	}
	s.rounded(&wk.x[0], superBlock, &wk.levels[0], &wk.m[0])
	s.toHalf(&wk.halfD[0], &wk.d[0], v)
	s.gather(&wk.bytes[0], &wk.levels[0], superBlock, superBlock)
	// −1, 0, 1 as bytes become 0, 1, 2: no carry leaves a byte if the top bits are
	// kept out of the sum.
	for i := 0; i < v*superBlock; i += 8 {
		q := le.Uint64(wk.bytes[i:])
		le.PutUint64(wk.bytes[i:], (q&^high1+low1)^(q&high1))
	}
}

const high1 = 0x8080808080808080

// TQ20 quantizes to tq2_0.
func (s *Set) TQ20(dst []byte, src []float32, rows, cols int, _ []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	s.blocks(wk, src, rows, cols, superBlock, nil, func(first, count int, x, _ *float32) {
		s.ternary(wk, x)
		for k := range count {
			out := dst[66*(first+k) : 66*(first+k)+66]
			packTwoBits(out[:64], wk.bytes[superBlock*k:superBlock*(k+1)])
			le.PutUint16(out[64:], wk.halfD[k])
		}
	})
}

// fiveDigits packs five base-3 digits of each of four numbers in 16-bit parts, apart
// numbers apart, as bytes that decode by multiplying: 256ths, rounded up.
func fiveDigits(q []byte, apart int, dst []byte) {
	const parts = 0x00ff00ff00ff00ff
	var even, odd uint64
	for n := range 5 {
		d := le.Uint64(q[n*apart:])
		even, odd = even*3+d&parts, odd*3+d>>8&parts
	}
	for i := range 4 {
		e, o := uint32(even>>(16*i)&0xffff), uint32(odd>>(16*i)&0xffff)
		dst[2*i], dst[2*i+1] = byte((e*256+242)/243), byte((o*256+242)/243)
	}
}

// TQ10 quantizes to tq1_0.
func (s *Set) TQ10(dst []byte, src []float32, rows, cols int, _ []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	s.blocks(wk, src, rows, cols, superBlock, nil, func(first, count int, x, _ *float32) {
		s.ternary(wk, x)
		for k := range count {
			out, q := dst[54*(first+k):54*(first+k)+54], wk.bytes[superBlock*k:superBlock*(k+1)]
			for m := 0; m < 32; m += 8 {
				fiveDigits(q[m:], 32, out[m:])
			}
			for m := 0; m < 16; m += 8 {
				fiveDigits(q[160+m:], 16, out[32+m:])
			}
			for j := range 4 {
				v := ((uint32(q[240+j])*3+uint32(q[244+j]))*3+uint32(q[248+j]))*3 + uint32(q[252+j])
				out[48+j] = byte((v*3*256 + 242) / 243)
			}
			le.PutUint16(out[52:], wk.halfD[k])
		}
	})
}

// Q20 quantizes to q2_0.
func (s *Set) Q20(dst []byte, src []float32, rows, cols int, _ []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	s.blocks(wk, src, rows, cols, 64, nil, func(first, count int, x, _ *float32) {
		s.transpose(&wk.x[0], x, 4*64, 64)
		s.extremes(&wk.fit[0], &wk.x[0], 64)
		for k, amax := range wk.fit[v : 2*v] {
			wk.d[k], wk.m[k] = amax, inverse(amax)
		}
		s.rounded(&wk.x[0], 64, &wk.levels[0], &wk.m[0])
		s.toHalf(&wk.halfD[0], &wk.d[0], v)
		s.gather(&wk.bytes[0], &wk.levels[0], 64, 64)
		for k := range count {
			out, q := dst[18*(first+k):18*(first+k)+18], wk.bytes[64*k:64*k+64]
			le.PutUint16(out, wk.halfD[k])
			overflow := wk.m[k] > math.MaxFloat32
			for i := 0; i < 64; i += 8 {
				l := le.Uint64(q[i:])
				l = (l&^high1 + low1) ^ l&high1
				if overflow { // 0x80000000 + 1 is below 0
					l = 0
				}
				l = (l | l>>6) & 0x000f000f000f000f
				l = (l | l>>12) & 0x000000ff000000ff
				le.PutUint16(out[2+i/4:], uint16(l|l>>24))
			}
		}
	})
}

// Q10 quantizes to q1_0.
func (s *Set) Q10(dst []byte, src []float32, rows, cols int, _ []float32) {
	wk := works.Get().(*work)
	defer works.Put(wk)
	v := s.lanes
	clear(wk.base[:])
	s.blocks(wk, src, rows, cols, 128, nil, func(first, count int, x, _ *float32) {
		s.transpose(&wk.x[0], x, 4*128, 128)
		s.sizeWeights(&wk.w[0], &wk.x[0], 128, &wk.base[0])
		s.sum(&wk.d[0], &wk.w[0], 128)
		for k := range wk.d[:v] {
			wk.d[k] /= 128
		}
		s.toHalf(&wk.halfD[0], &wk.d[0], v)
		s.notNegative(&wk.bytes[0], x, v*128)
		for k := range count {
			out := dst[18*(first+k) : 18*(first+k)+18]
			le.PutUint16(out, wk.halfD[k])
			copy(out[2:], wk.bytes[16*k:16*k+16])
		}
	})
}

package quant

import "math"

// Types of one to two bits and the 4-bit floats. None uses weights.

func quantizeQ1_0(dst []byte, src, _ []float32, _ how) {
	for b := range len(src) / 128 {
		x, out := src[128*b:128*b+128], dst[18*b:18*b+18]
		sum := float32(0)
		for _, v := range x {
			sum += abs(v)
		}
		putF16(out, sum/128)
		clear(out[2:])
		for j, v := range x {
			if v >= 0 {
				out[2+j/8] |= 1 << (j % 8)
			}
		}
	}
}

func dequantizeQ1_0(dst []float32, src []byte) {
	for b := range len(dst) / 128 {
		y, in := dst[128*b:128*b+128], src[18*b:18*b+18]
		d := getF16(in)
		for j := range y {
			y[j] = -d
			if in[2+j/8]>>(j%8)&1 != 0 {
				y[j] = d
			}
		}
	}
}

func quantizeQ2_0(dst []byte, src, _ []float32, _ how) {
	for b := range len(src) / 64 {
		x, out := src[64*b:64*b+64], dst[18*b:18*b+18]
		d := float32(0)
		for _, v := range x {
			if a := abs(v); a > d {
				d = a
			}
		}
		id := float32(0)
		if d > 0 {
			id = 1 / d
		}
		putF16(out, d)
		clear(out[2:])
		for j, v := range x {
			q := clamp(truncate(roundAway(float32(v*id)))+1, 0, 3)
			out[2+j/4] |= byte(q) << (j % 4 * 2)
		}
	}
}

func dequantizeQ2_0(dst []float32, src []byte) {
	for b := range len(dst) / 64 {
		y, in := dst[64*b:64*b+64], src[18*b:18*b+18]
		d := getF16(in)
		for j := range y {
			y[j] = float32(int32(in[2+j/4]>>(j%4*2)&3)-1) * d
		}
	}
}

// ternary returns d of a super-block and sets its digits 0, 1, 2.
func ternary(x []float32, digits *[superBlock]uint8) float32 {
	d := float32(0)
	for _, v := range x {
		if a := abs(v); !(d > a) {
			d = a
		}
	}
	id := inverse(d)
	for j, v := range x {
		digits[j] = uint8(int32(roundAway(float32(v*id))) + 1)
	}
	return d
}

func quantizeTQ1_0(dst []byte, src, _ []float32, _ how) {
	var t [superBlock]uint8
	// pack turns five base-3 digits, n apart, into a byte that decodes by
	// multiplying: the value scaled to 256ths, rounded up.
	pack := func(at, n, count int) byte {
		q := uint16(0)
		for i := range count {
			q = q*3 + uint16(t[at+i*n])
		}
		for range 5 - count {
			q *= 3
		}
		return byte((q*256 + 242) / 243)
	}
	for b := range len(src) / superBlock {
		out := dst[54*b : 54*b+54]
		putF16(out[52:], ternary(src[b*superBlock:(b+1)*superBlock], &t))
		for m := range 32 {
			out[m] = pack(m, 32, 5)
		}
		for m := range 16 {
			out[32+m] = pack(160+m, 16, 5)
		}
		for j := range 4 {
			out[48+j] = pack(240+j, 4, 4)
		}
	}
}

var powersOf3 = [5]uint8{1, 3, 9, 27, 81}

func dequantizeTQ1_0(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[54*b:54*b+54]
		d := getF16(in[52:])
		digit := func(q byte, n int) float32 {
			q *= powersOf3[n]
			return float32(int32(uint16(q)*3>>8)-1) * d
		}
		for n := range 5 {
			for m := range 32 {
				y[32*n+m] = digit(in[m], n)
			}
			for m := range 16 {
				y[160+16*n+m] = digit(in[32+m], n)
			}
		}
		for n := range 4 {
			for j := range 4 {
				y[240+4*n+j] = digit(in[48+j], n)
			}
		}
	}
}

func quantizeTQ2_0(dst []byte, src, _ []float32, _ how) {
	var t [superBlock]uint8
	for b := range len(src) / superBlock {
		out := dst[66*b : 66*b+66]
		putF16(out[64:], ternary(src[b*superBlock:(b+1)*superBlock], &t))
		for i := range 64 {
			q := t[i/32*128+i%32:]
			out[i] = q[0]&3 | q[32]&3<<2 | q[64]&3<<4 | q[96]&3<<6
		}
	}
}

func dequantizeTQ2_0(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[66*b:66*b+66]
		d := getF16(in[64:])
		for i, q := range in[:64] {
			out := y[i/32*128+i%32:]
			for n := range 4 {
				out[32*n] = float32(int32(q>>(2*n)&3)-1) * d
			}
		}
	}
}

// fp4Values are the 4-bit floats, doubled (ggml-common.h, kvalues_mxfp4). The
// second zero is never chosen.
var fp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// fp4Nearest returns the code whose value times d is nearest to x, the first of
// several.
func fp4Nearest(x, d float32) byte {
	best, at := abs(float32(fp4Values[0]*d)-x), byte(0)
	for i := 1; i < 16; i++ {
		if e := abs(float32(fp4Values[i]*d) - x); e < best {
			best, at = e, byte(i)
		}
	}
	return at
}

// halfE8M0 is half the value of an E8M0 code.
func halfE8M0(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

func quantizeMXFP4(dst []byte, src, _ []float32, _ how) {
	for b := range len(src) / 32 {
		x, out := src[32*b:32*b+32], dst[17*b:17*b+17]
		amax := float32(0)
		for _, v := range x {
			if a := abs(v); a > amax {
				amax = a
			}
		}
		e := byte(0)
		if amax > 0 {
			// log2f of the C library, rounded to float32 before it is floored.
			e = byte(truncate(float32(math.Floor(float64(float32(math.Log2(float64(amax)))))) - 2 + 127))
		}
		out[0] = e
		d := halfE8M0(e)
		for j := range 16 {
			out[1+j] = fp4Nearest(x[j], d) | fp4Nearest(x[j+16], d)<<4
		}
	}
}

func dequantizeMXFP4(dst []float32, src []byte) {
	for b := range len(dst) / 32 {
		in := src[17*b : 17*b+17]
		lookup16(dst[32*b:32*b+32], in[1:], halfE8M0(in[0]), &fp4Values)
	}
}

// toUE4M3 rounds a positive number to the unsigned 8-bit float of nvfp4: halves go
// up, what is too large becomes 448.
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
		man := truncate(float32(x*512) + 0.5)
		return byte(clamp(man, 0, 7))
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

// halfUE4M3 is half the value of a code. The code that is NaN elsewhere is 0; with
// the sign bit, which is otherwise ignored, it is 480.
var halfUE4M3 = codeTable(func(c uint32) float32 {
	if c == 0x7f {
		return 0
	}
	c &= 0x7f
	e, m := c>>3, c&7
	if e == 0 {
		return float32(m) * (1.0 / 512) * 0.5
	}
	return math.Float32frombits((e+127-7)<<23|m<<20) * 0.5
})

func quantizeNVFP4(dst []byte, src, _ []float32, _ how) {
	for b := range len(src) / 64 {
		out := dst[36*b : 36*b+36]
		for s := range 4 {
			x := src[64*b+16*s : 64*b+16*s+16]
			amax := float32(0)
			for _, v := range x {
				if a := abs(v); a > amax {
					amax = a
				}
			}
			out[s] = toUE4M3(amax / 6)
			d := halfUE4M3[out[s]]
			for j := range 8 {
				out[4+8*s+j] = fp4Nearest(x[j], d) | fp4Nearest(x[j+8], d)<<4
			}
		}
	}
}

// overflowsNVFP4 counts groups of 16 with numbers beyond 448·6, which are cut.
func overflowsNVFP4(_ []byte, src []float32) int64 {
	n := int64(0)
	for ; len(src) >= 16; src = src[16:] {
		if countFrom(src[:16], math.Float32bits(448*6)+1) > 0 {
			n++
		}
	}
	return n
}

func dequantizeNVFP4(dst []float32, src []byte) {
	for b := range len(dst) / 64 {
		in := src[36*b : 36*b+36]
		for s := range 4 {
			d, y := halfUE4M3[in[s]], dst[64*b+16*s:]
			for j, q := range in[4+8*s : 12+8*s] {
				y[j] = d * fp4Values[q&15]
				y[j+8] = d * fp4Values[q>>4]
			}
		}
	}
}

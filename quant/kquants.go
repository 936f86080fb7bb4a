package quant

// Super-blocks of 256 whose sub-blocks' scales are themselves quantized.

const superBlock = 256

var (
	fitQ2Plain    = fit{nmax: 3, rmin: -0.5, rdelta: 0.1, steps: 15, mad: true}
	fitQ2Weighted = fit{nmax: 3, rmin: -0.9, rdelta: 0.05, steps: 36, flat: true}
	fitQ4Plain    = fit{nmax: 15, rmin: -1, rdelta: 0.1, steps: 20}
	fitQ4Weighted = fit{nmax: 15, rmin: -0.9, rdelta: 0.05, steps: 36, flat: true}
	fitQ5Plain    = fit{nmax: 31, rmin: -0.5, rdelta: 0.1, steps: 15}
	fitQ5Weighted = fit{nmax: 31, rmin: -0.9, rdelta: 0.05, steps: 36, flat: true}
)

// top returns the largest of scales, from 0.
func top(scales []float32) float32 {
	m := float32(0)
	for _, s := range scales {
		if s > m {
			m = s
		}
	}
	return m
}

// farthest returns the scale with the strictly largest size, sign kept.
func farthest(scales []float32) float32 {
	m, amax := float32(0), float32(0)
	for _, s := range scales {
		if a := abs(s); a > amax {
			amax, m = a, s
		}
	}
	return m
}

func quantizeQ2_K(dst []byte, src, qw []float32, _ how) {
	for b := range len(src) / superBlock {
		var w []float32
		if qw != nil {
			w = qw[b*superBlock:]
		}
		blockQ2_K(dst[84*b:84*b+84], src[b*superBlock:(b+1)*superBlock], w)
	}
}

func blockQ2_K(out []byte, x, qw []float32) {
	var w [16]float32
	var scales, mins, sums [16]float32
	var levels [superBlock]uint8
	f, sigma2 := &fitQ2Plain, float32(0)
	if qw != nil {
		f, sigma2 = &fitQ2Weighted, sumSquares(x)/superBlock
	}
	for j := range 16 {
		sub := x[16*j : 16*j+16]
		if qw != nil {
			imatrixWeights(w[:], qw[16*j:], sub, sigma2)
			for _, v := range w {
				sums[j] += v
			}
		} else {
			for l, v := range sub {
				w[l] = abs(v)
			}
		}
		scales[j], mins[j] = qkxQuants(f, sub, w[:], levels[16*j:])
	}
	var d, dmin float32
	for j := range 16 {
		out[j] = 0
	}
	if qw != nil {
		var ls, lm [16]uint8
		d, dmin = qpQuants(15, scales[:], ls[:], sums[:]), qpQuants(15, mins[:], lm[:], sums[:])
		for j := range 16 {
			out[j] = ls[j] | lm[j]<<4
		}
	} else {
		if high := top(scales[:]); high > 0 {
			inv := 15 / high
			for j, s := range scales {
				out[j] = byte(nearest(inv * s))
			}
			d = high / 15
		}
		if high := top(mins[:]); high > 0 {
			inv := 15 / high
			for j, s := range mins {
				out[j] |= byte(nearest(inv*s)) << 4
			}
			dmin = high / 15
		}
	}
	putF16(out[80:], d)
	putF16(out[82:], dmin)
	d, dmin = getF16(out[80:]), getF16(out[82:])
	for j := range 16 {
		dj := float32(d * float32(out[j]&15))
		if dj == 0 {
			continue
		}
		mj := float32(dmin * float32(out[j]>>4))
		for l := 16 * j; l < 16*j+16; l++ {
			levels[l] = uint8(clamp(nearest((x[l]+mj)/dj), 0, 3))
		}
	}
	for half := range 2 {
		for l := range 32 {
			q := levels[128*half+l:]
			out[16+32*half+l] = q[0] | q[32]<<2 | q[64]<<4 | q[96]<<6
		}
	}
}

func dequantizeQ2_K(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[84*b:84*b+84]
		d, dmin := getF16(in[80:]), getF16(in[82:])
		for j := range 16 {
			dl, ml := float32(d*float32(in[j]&15)), float32(dmin*float32(in[j]>>4))
			shift := j % 8 / 2 * 2
			q := in[16+j/8*32+j%2*16:]
			for l := range 16 {
				y[16*j+l] = float32(dl*float32(q[l]>>shift&3)) - ml
			}
		}
	}
}

func quantizeQ3_K(dst []byte, src, qw []float32, _ how) {
	for b := range len(src) / superBlock {
		var w []float32
		if qw != nil {
			w = qw[b*superBlock:]
		}
		blockQ3_K(dst[110*b:110*b+110], src[b*superBlock:(b+1)*superBlock], w)
	}
}

func blockQ3_K(out []byte, x, qw []float32) {
	var w, scales, sums [16]float32
	var levels [superBlock]int8
	var steps [16]int8 // six-bit scales, biased by 32
	var d float32
	if qw != nil {
		sigma2 := 2 * sumSquares(x) / superBlock
		for j := range 16 {
			imatrixWeights(w[:], qw[16*j:], x[16*j:16*j+16], sigma2)
			for _, v := range w {
				sums[j] += v
			}
			scales[j] = qxQuants(4, x[16*j:16*j+16], levels[16*j:], w[:])
		}
		d = qxQuants(32, scales[:], steps[:], sums[:])
	} else {
		for j := range 16 {
			scales[j] = q3Quants(x[16*j:16*j+16], levels[16*j:])
		}
		if high := farthest(scales[:]); high != 0 {
			iscale := -32 / high
			for j, s := range scales {
				steps[j] = int8(clamp(int32(int8(nearest(iscale*s))), -32, 31) + 32)
			}
			d = 1 / iscale
		}
	}
	clear(out)
	packed := out[96:108]
	for j, s := range steps {
		if j < 8 {
			packed[j] = byte(s) & 15
		} else {
			packed[j-8] |= byte(s) & 15 << 4
		}
		packed[8+j%4] |= byte(s) >> 4 << (j / 4 * 2)
	}
	putF16(out[108:], d)
	d = getF16(out[108:])
	for j, s := range steps {
		dj := float32(d * float32(int32(s)-32))
		if dj == 0 {
			continue
		}
		for l := 16 * j; l < 16*j+16; l++ {
			levels[l] = int8(clamp(nearest(x[l]/dj), -4, 3) + 4)
		}
	}
	for l, q := range levels {
		if q > 3 {
			out[l%32] |= 1 << (l / 32)
			q -= 4
		}
		out[32+l/128*32+l%32] |= byte(q) << (l % 128 / 32 * 2)
	}
}

// q3Scales unpacks the sixteen six-bit scales, without their bias.
func q3Scales(packed []byte) (s [16]int32) {
	for j := range s {
		low := packed[j%8] >> (j / 8 * 4) & 15
		s[j] = int32(low|packed[8+j%4]>>(j/4*2)&3<<4) - 32
	}
	return s
}

func dequantizeQ3_K(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[110*b:110*b+110]
		d, scales := getF16(in[108:]), q3Scales(in[96:108])
		for j, s := range scales {
			dl := float32(d * float32(s))
			shift, mask := j%8/2*2, byte(1)<<(j/2)
			q, high := in[32+j/8*32+j%2*16:], in[j%2*16:]
			for l := range 16 {
				v := int32(q[l] >> shift & 3)
				if high[l]&mask == 0 {
					v -= 4
				}
				y[16*j+l] = dl * float32(v)
			}
		}
	}
}

// packScales stores eight six-bit scales and mins in twelve bytes. Bits beyond
// the sixth spill as they do in ggml.
func packScales(dst []byte, s, m *[8]uint8) {
	for j := range 4 {
		dst[j], dst[j+4] = s[j], m[j]
	}
	for j := 4; j < 8; j++ {
		dst[j+4] = s[j]&15 | m[j]&15<<4
		dst[j-4] |= s[j] >> 4 << 6
		dst[j] |= m[j] >> 4 << 6
	}
}

// unpackScale returns scale and minimum j.
func unpackScale(p []byte, j int) (s, m uint8) {
	if j < 4 {
		return p[j] & 63, p[j+4] & 63
	}
	return p[j+4]&15 | p[j-4]>>6<<4, p[j+4]>>4 | p[j]>>6<<4
}

// block45 does what q4_K and q5_K share: it writes d, dmin and the scales to out
// and returns the levels.
func block45(out []byte, x, qw []float32, plain, weighted *fit, limit bool, levels *[superBlock]uint8) {
	var w [32]float32
	var scales, mins, sums [8]float32
	sigma2 := float32(0)
	if qw != nil {
		sigma2 = 2 * sumSquares(x) / superBlock
	}
	f := weighted
	if qw == nil {
		f = plain
	}
	for j := range 8 {
		sub := x[32*j : 32*j+32]
		if qw != nil {
			imatrixWeights(w[:], qw[32*j:], sub, sigma2)
			for _, v := range w {
				sums[j] += v
			}
		} else {
			av := sqrt(sumSquares(sub) / 32)
			for l, v := range sub {
				w[l] = av + abs(v)
			}
		}
		scales[j], mins[j] = qkxQuants(f, sub, w[:], levels[32*j:])
	}
	var ls, lm [8]uint8
	var d, dmin float32
	if qw != nil {
		d, dmin = qpQuants(63, scales[:], ls[:], sums[:]), qpQuants(63, mins[:], lm[:], sums[:])
		if limit {
			for j := range ls {
				ls[j], lm[j] = min(63, ls[j]), min(63, lm[j])
			}
		}
	} else {
		d, dmin = sixBits(&ls, &scales), sixBits(&lm, &mins)
	}
	putF16(out, d)
	putF16(out[2:], dmin)
	packScales(out[4:16], &ls, &lm)
	d, dmin = getF16(out), getF16(out[2:])
	for j := range 8 {
		sc, m := unpackScale(out[4:16], j)
		dj := float32(d * float32(sc))
		if dj == 0 {
			continue
		}
		mj := float32(dmin * float32(m))
		for l := 32 * j; l < 32*j+32; l++ {
			levels[l] = uint8(clamp(nearest((x[l]+mj)/dj), 0, f.nmax))
		}
	}
}

// sixBits quantizes eight scales to 0..63 of the largest and returns the step.
func sixBits(dst *[8]uint8, scales *[8]float32) float32 {
	high := top(scales[:])
	inv := float32(0)
	if high > 0 {
		inv = 63 / high
	}
	for j, s := range scales {
		dst[j] = min(63, uint8(nearest(inv*s)))
	}
	return high / 63
}

func quantizeQ4_K(dst []byte, src, qw []float32, _ how) {
	var levels [superBlock]uint8
	for b := range len(src) / superBlock {
		out := dst[144*b : 144*b+144]
		block45(out, src[b*superBlock:(b+1)*superBlock], part(qw, b), &fitQ4Plain, &fitQ4Weighted, false, &levels)
		for i := range 128 {
			l := i/32*64 + i%32
			out[16+i] = levels[l] | levels[l+32]<<4
		}
	}
}

// part returns the weights of super-block b, or nil.
func part(qw []float32, b int) []float32 {
	if qw == nil {
		return nil
	}
	return qw[b*superBlock : (b+1)*superBlock]
}

func dequantizeQ4_K(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[144*b:144*b+144]
		d, dmin := getF16(in), getF16(in[2:])
		for j := range 8 {
			sc, m := unpackScale(in[4:16], j)
			dl, ml := float32(d*float32(sc)), float32(dmin*float32(m))
			q, shift := in[16+j/2*32:], j%2*4
			for l := range 32 {
				y[32*j+l] = float32(dl*float32(q[l]>>shift&15)) - ml
			}
		}
	}
}

func quantizeQ5_K(dst []byte, src, qw []float32, _ how) {
	var levels [superBlock]uint8
	for b := range len(src) / superBlock {
		out := dst[176*b : 176*b+176]
		block45(out, src[b*superBlock:(b+1)*superBlock], part(qw, b), &fitQ5Plain, &fitQ5Weighted, true, &levels)
		high, low := out[16:48], out[48:176]
		clear(high)
		for i := range 128 {
			l := i/32*64 + i%32
			a, c := levels[l], levels[l+32]
			low[i] = a&15 | c&15<<4
			high[i%32] |= a>>4<<(i/32*2) | c>>4<<(i/32*2+1)
		}
	}
}

func dequantizeQ5_K(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[176*b:176*b+176]
		d, dmin := getF16(in), getF16(in[2:])
		high := in[16:48]
		for j := range 8 {
			sc, m := unpackScale(in[4:16], j)
			dl, ml := float32(d*float32(sc)), float32(dmin*float32(m))
			q, shift := in[48+j/2*32:], j%2*4
			for l := range 32 {
				v := q[l]>>shift&15 | high[l]>>j&1<<4
				y[32*j+l] = float32(dl*float32(v)) - ml
			}
		}
	}
}

func quantizeQ6_K(dst []byte, src, qw []float32, _ how) {
	for b := range len(src) / superBlock {
		blockQ6_K(dst[210*b:210*b+210], src[b*superBlock:(b+1)*superBlock], part(qw, b))
	}
}

func blockQ6_K(out []byte, x, qw []float32) {
	var scales [16]float32
	var levels [superBlock]int8
	var sq [16]float32
	clear(out)
	for j := range 16 {
		sub := x[16*j : 16*j+16]
		var w []float32
		if qw != nil {
			w = qw[16*j : 16*j+16]
		} else {
			w = squares(sq[:], sub)
		}
		scales[j] = qxQuants(32, sub, levels[16*j:], w)
	}
	high := farthest(scales[:])
	if abs(high) < 1e-15 {
		return
	}
	iscale := -128 / high
	putF16(out[208:], 1/iscale)
	d := getF16(out[208:])
	for j, s := range scales {
		sc := int8(min(127, nearest(iscale*s)))
		out[192+j] = byte(sc)
		dj := float32(d * float32(sc))
		if dj == 0 {
			continue
		}
		for l := 16 * j; l < 16*j+16; l++ {
			levels[l] = int8(clamp(nearest(x[l]/dj), -32, 31) + 32)
		}
	}
	for half := range 2 {
		q, low, top := levels[128*half:], out[64*half:], out[128+32*half:]
		for l := range 32 {
			a, b, c, e := byte(q[l]), byte(q[l+32]), byte(q[l+64]), byte(q[l+96])
			low[l] = a&15 | c&15<<4
			low[l+32] = b&15 | e&15<<4
			top[l] = a>>4 | b>>4<<2 | c>>4<<4 | e>>4<<6
		}
	}
}

func dequantizeQ6_K(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[210*b:210*b+210]
		d := getF16(in[208:])
		for half := range 2 {
			low, top, out := in[64*half:], in[128+32*half:], y[128*half:]
			var dl [8]float32
			for j := range dl {
				dl[j] = float32(d * float32(int8(in[192+8*half+j])))
			}
			for l := range 32 {
				s := l / 16
				h := top[l]
				out[l] = dl[s] * float32(int32(low[l]&15|h&3<<4)-32)
				out[l+32] = dl[s+2] * float32(int32(low[l+32]&15|h>>2&3<<4)-32)
				out[l+64] = dl[s+4] * float32(int32(low[l]>>4|h>>4&3<<4)-32)
				out[l+96] = dl[s+6] * float32(int32(low[l+32]>>4|h>>6<<4)-32)
			}
		}
	}
}

func dequantizeQ8_K(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		in := src[292*b : 292*b+292]
		var d [1]float32
		dequantizeF32(d[:], in)
		for j, q := range in[4:260] {
			dst[b*superBlock+j] = d[0] * float32(int8(q))
		}
	}
}

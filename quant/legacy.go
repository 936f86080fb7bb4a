package quant

// Blocks of 32 with one scale, and a minimum for the "_1" types.

// nibbles packs 32 levels: element j in the low half of byte j, j+16 in the high.
func nibbles(dst []byte, levels *[32]uint8) {
	for j := range 16 {
		dst[j] = levels[j]&15 | levels[j+16]<<4
	}
}

// fifthBits packs bit 4 of 32 levels, element j in bit j.
func fifthBits(levels *[32]uint8) uint32 {
	h := uint32(0)
	for j, l := range levels {
		h |= uint32(l>>4&1) << j
	}
	return h
}

// signedLevels returns d and the levels of q4_0 and q5_0 without weights: the
// number farthest from zero lands on the lowest level.
func signedLevels(x []float32, half float32, levels *[32]uint8) float32 {
	amax, top := float32(0), float32(0)
	for _, v := range x {
		if a := abs(v); a > amax {
			amax, top = a, v
		}
	}
	d := top / -half
	id := float32(0)
	if d != 0 {
		id = 1 / d
	}
	for j, v := range x {
		l := int8(truncate(float32(v*id) + (half + 0.5)))
		levels[j] = uint8(min(int8(2*half-1), l))
	}
	return d
}

// rangeLevels returns d and the minimum of q4_1 and q5_1 without weights.
func rangeLevels(x []float32, high float32, limit bool, levels *[32]uint8) (d, low float32) {
	low, top := float32(largest), float32(-largest)
	for _, v := range x {
		if v < low {
			low = v
		}
		if v > top {
			top = v
		}
	}
	d = (top - low) / high
	id := float32(0)
	if d != 0 {
		id = 1 / d
	}
	for j, v := range x {
		l := truncate(float32((v-low)*id) + 0.5)
		if limit {
			levels[j] = uint8(min(int8(high), int8(l)))
		} else {
			levels[j] = uint8(l)
		}
	}
	return d, low
}

// weightedSigned fits every block of a row with weights, for q4_0 and q5_0.
func weightedSigned(src, qw []float32, sigma2 float32, nmax int32, put func(b int, d float32, levels *[32]uint8)) {
	var w [32]float32
	var l [32]int8
	var levels [32]uint8
	for b := range len(src) / 32 {
		x := src[32*b : 32*b+32]
		imatrixWeights(w[:], qw[32*b:], x, sigma2)
		d := qxQuants(nmax, x, l[:], w[:])
		for j := range levels {
			levels[j] = uint8(l[j])
		}
		put(b, d, &levels)
	}
}

// weightedRange is the same for q4_1 and q5_1.
func weightedRange(src, qw []float32, sigma2 float32, nmax int32, put func(b int, d, m float32, levels *[32]uint8)) {
	f := fit{nmax: nmax, rmin: -0.9, rdelta: 0.05, steps: 36, flat: true}
	var w [32]float32
	var levels [32]uint8
	for b := range len(src) / 32 {
		x := src[32*b : 32*b+32]
		imatrixWeights(w[:], qw[32*b:], x, sigma2)
		d, least := qkxQuants(&f, x, w[:], levels[:])
		put(b, d, -least, &levels)
	}
}

func quantizeQ4_0(dst []byte, src, qw []float32, h how) {
	put := func(b int, d float32, levels *[32]uint8) {
		putF16(dst[18*b:], d)
		nibbles(dst[18*b+2:], levels)
	}
	if qw != nil {
		weightedSigned(src, qw, h.sigma2, 8, put)
		return
	}
	var levels [32]uint8
	for b := range len(src) / 32 {
		put(b, signedLevels(src[32*b:32*b+32], 8, &levels), &levels)
	}
}

func quantizeQ5_0(dst []byte, src, qw []float32, h how) {
	put := func(b int, d float32, levels *[32]uint8) {
		putF16(dst[22*b:], d)
		le.PutUint32(dst[22*b+2:], fifthBits(levels))
		nibbles(dst[22*b+6:], levels)
	}
	if qw != nil {
		weightedSigned(src, qw, h.sigma2, 16, put)
		return
	}
	var levels [32]uint8
	for b := range len(src) / 32 {
		put(b, signedLevels(src[32*b:32*b+32], 16, &levels), &levels)
	}
}

func quantizeQ4_1(dst []byte, src, qw []float32, h how) {
	put := func(b int, d, m float32, levels *[32]uint8) {
		putF16(dst[20*b:], d)
		putF16(dst[20*b+2:], m)
		nibbles(dst[20*b+4:], levels)
	}
	if qw != nil {
		weightedRange(src, qw, h.sigma2, 15, put)
		return
	}
	var levels [32]uint8
	for b := range len(src) / 32 {
		d, m := rangeLevels(src[32*b:32*b+32], 15, true, &levels)
		put(b, d, m, &levels)
	}
}

func quantizeQ5_1(dst []byte, src, qw []float32, h how) {
	put := func(b int, d, m float32, levels *[32]uint8) {
		putF16(dst[24*b:], d)
		putF16(dst[24*b+2:], m)
		le.PutUint32(dst[24*b+4:], fifthBits(levels))
		nibbles(dst[24*b+8:], levels)
	}
	if qw != nil {
		weightedRange(src, qw, h.sigma2, 31, put)
		return
	}
	var levels [32]uint8
	for b := range len(src) / 32 {
		d, m := rangeLevels(src[32*b:32*b+32], 31, false, &levels)
		put(b, d, m, &levels)
	}
}

func quantizeQ8_0(dst []byte, src, _ []float32, _ how) {
	for b := range len(src) / 32 {
		x, out := src[32*b:32*b+32], dst[34*b:34*b+34]
		amax := float32(0)
		for _, v := range x {
			if a := abs(v); !(amax > a) {
				amax = a
			}
		}
		d := amax / 127
		id := float32(0)
		if d != 0 {
			id = 1 / d
		}
		putF16(out, d)
		for j, v := range x {
			out[2+j] = byte(truncate(roundAway(float32(v * id))))
		}
	}
}

func dequantizeQ4_0(dst []float32, src []byte) {
	for b := range len(dst) / 32 {
		y, in := dst[32*b:32*b+32], src[18*b:18*b+18]
		d := getF16(in)
		for j, q := range in[2:] {
			y[j] = float32(int32(q&15)-8) * d
			y[j+16] = float32(int32(q>>4)-8) * d
		}
	}
}

func dequantizeQ4_1(dst []float32, src []byte) {
	for b := range len(dst) / 32 {
		y, in := dst[32*b:32*b+32], src[20*b:20*b+20]
		d, m := getF16(in), getF16(in[2:])
		for j, q := range in[4:] {
			y[j] = float32(float32(q&15)*d) + m
			y[j+16] = float32(float32(q>>4)*d) + m
		}
	}
}

func dequantizeQ5_0(dst []float32, src []byte) {
	for b := range len(dst) / 32 {
		y, in := dst[32*b:32*b+32], src[22*b:22*b+22]
		d, h := getF16(in), le.Uint32(in[2:])
		for j, q := range in[6:] {
			y[j] = float32(int32(uint32(q&15)|h>>j<<4&16)-16) * d
			y[j+16] = float32(int32(uint32(q>>4)|h>>(j+16)<<4&16)-16) * d
		}
	}
}

func dequantizeQ5_1(dst []float32, src []byte) {
	for b := range len(dst) / 32 {
		y, in := dst[32*b:32*b+32], src[24*b:24*b+24]
		d, m, h := getF16(in), getF16(in[2:]), le.Uint32(in[4:])
		for j, q := range in[8:] {
			y[j] = float32(float32(uint32(q&15)|h>>j<<4&16)*d) + m
			y[j+16] = float32(float32(uint32(q>>4)|h>>(j+16)<<4&16)*d) + m
		}
	}
}

func dequantizeQ8_0(dst []float32, src []byte) {
	for b := range len(dst) / 32 {
		y, in := dst[32*b:32*b+32], src[34*b:34*b+34]
		d := getF16(in)
		for j, q := range in[2:] {
			y[j] = float32(int8(q)) * d
		}
	}
}

// dequantizeQ8_1 decodes ggml's intermediate form of activations.
func dequantizeQ8_1(dst []float32, src []byte) {
	for b := range len(dst) / 32 {
		y, in := dst[32*b:32*b+32], src[36*b:36*b+36]
		d := getF16(in)
		for j, q := range in[4:] {
			y[j] = float32(int8(q)) * d
		}
	}
}

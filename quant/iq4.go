package quant

// iq4Values are the levels of iq4_nl and iq4_xs (ggml-common.h, kvalues_iq4nl).
var iq4Values = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

var iq4Floats = func() (f [16]float32) {
	for i, v := range iq4Values {
		f[i] = float32(v)
	}
	return f
}()

// iq4Nearest returns the level nearest to x; of two equally near the upper one.
func iq4Nearest(x float32) int {
	v := &iq4Floats
	if x <= v[0] {
		return 0
	}
	if x >= v[15] {
		return 15
	}
	low, high := 0, 15
	for high-low > 1 {
		if mid := (low + high) / 2; x < v[mid] {
			high = mid
		} else {
			low = mid
		}
	}
	if x-v[high-1] < v[high]-x {
		return high - 1
	}
	return high
}

// iq4Scale fits the scale of one sub-block of 32.
func iq4Scale(x, w []float32) float32 {
	amax, top := float32(0), float32(0)
	for _, v := range x {
		if a := abs(v); a > amax {
			amax, top = a, v
		}
	}
	if amax < 1e-15 {
		return 0
	}
	sums := func(id float32) (sumqx, sumq2 float32) {
		for j, v := range x {
			q := iq4Floats[iq4Nearest(float32(id*v))&15]
			wq := float32(w[j] * q)
			sumqx += float32(wq * v)
			sumq2 += float32(wq * q)
		}
		return sumqx, sumq2
	}
	d := -top / iq4Floats[0]
	sumqx, sumq2 := sums(1 / d)
	d = 0
	if sumq2 > 0 {
		d = sumqx / sumq2
	}
	best := float32(d * sumqx)
	for it := -7; it <= 7; it++ {
		sumqx, sumq2 = sums((float32(it) + iq4Floats[0]) / top)
		if sumq2 > 0 && float32(sumqx*sumqx) > float32(best*sumq2) {
			d = sumqx / sumq2
			best = float32(d * sumqx)
		}
	}
	return d
}

// iq4Weights sets the weights of a sub-block.
func iq4Weights(w *[32]float32, x, qw []float32, sigma2 float32) {
	if qw == nil {
		squares(w[:], x)
		return
	}
	imatrixWeights(w[:], qw, x, sigma2)
}

// iq4Levels packs the levels nearest to id·x.
func iq4Levels(dst []byte, x []float32, id float32) {
	for j := range 16 {
		dst[j] = byte(iq4Nearest(float32(id*x[j])) | iq4Nearest(float32(id*x[j+16]))<<4)
	}
}

func inverse(d float32) float32 {
	if d != 0 {
		return 1 / d
	}
	return 0
}

func quantizeIQ4_NL(dst []byte, src, qw []float32, _ how) {
	var w [32]float32
	for b := range len(src) / 32 {
		x, out := src[32*b:32*b+32], dst[18*b:18*b+18]
		var q []float32
		if qw != nil {
			q = qw[32*b:]
		}
		iq4Weights(&w, x, q, float32(sumSquares(x)*(2.0/32)))
		d := iq4Scale(x, w[:])
		putF16(out, d)
		iq4Levels(out[2:], x, inverse(d))
	}
}

func quantizeIQ4_XS(dst []byte, src, qw []float32, _ how) {
	var w [32]float32
	var scales [8]float32
	for b := range len(src) / superBlock {
		x, out := src[b*superBlock:(b+1)*superBlock], dst[136*b:136*b+136]
		weights := part(qw, b)
		sigma2 := float32(sumSquares(x) * (2.0 / superBlock))
		for j := range scales {
			var q []float32
			if weights != nil {
				q = weights[32*j:]
			}
			iq4Weights(&w, x[32*j:32*j+32], q, sigma2)
			scales[j] = iq4Scale(x[32*j:32*j+32], w[:])
		}
		d := -farthest(scales[:]) / 32
		putF16(out, d)
		clear(out[2:8])
		id := inverse(d)
		high := uint16(0)
		for j, s := range scales {
			l := clamp(nearest(float32(id*s)), -32, 31)
			iq4Levels(out[8+16*j:], x[32*j:32*j+32], inverse(float32(d*float32(l))))
			l += 32
			out[4+j/2] |= byte(l&15) << (j % 2 * 4)
			high |= uint16(l>>4) << (2 * j)
		}
		le.PutUint16(out[2:], high)
	}
}

// lookup16 decodes 16 bytes of two levels each.
func lookup16(dst []float32, src []byte, d float32, values *[16]float32) {
	for j, q := range src[:16] {
		dst[j] = d * values[q&15]
		dst[j+16] = d * values[q>>4]
	}
}

func dequantizeIQ4_NL(dst []float32, src []byte) {
	for b := range len(dst) / 32 {
		in := src[18*b : 18*b+18]
		lookup16(dst[32*b:32*b+32], in[2:], getF16(in), &iq4Floats)
	}
}

func dequantizeIQ4_XS(dst []float32, src []byte) {
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[136*b:136*b+136]
		d, high := getF16(in), le.Uint16(in[2:])
		for j := range 8 {
			ls := int32(in[4+j/2]>>(j%2*4)&15) | int32(high>>(2*j)&3)<<4
			lookup16(y[32*j:32*j+32], in[8+16*j:], float32(d*float32(ls-32)), &iq4Floats)
		}
	}
}

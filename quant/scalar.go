package quant

import (
	"encoding/binary"
	"math"
)

// nearest rounds to the nearest integer, halves to even, by ggml's nearest_int
// trick: right for |f| < 2^22, and with the same wrong values beyond. Here, as in
// other small functions, float32 is around the argument itself: inlined, it may be
// a product.
func nearest(f float32) int32 {
	return int32(math.Float32bits(float32(f)+12582912)&0x007fffff) - 0x00400000
}

// truncate converts like x86's cvttss2si: what does not fit, or is no number, becomes
// the least int32. A plain Go conversion differs between machines there.
func truncate(f float32) int32 {
	if !(f > -2147483904 && f < 2147483648) {
		return math.MinInt32
	}
	return int32(f)
}

// roundAway is C's roundf: halves away from zero.
func roundAway(f float32) float32 { return float32(math.Round(float64(f))) }

func sqrt(f float32) float32 { return float32(math.Sqrt(float64(f))) }

func abs(f float32) float32 { return math.Float32frombits(math.Float32bits(f) &^ (1 << 31)) }

func clamp(v, low, high int32) int32 {
	if v < low {
		return low
	}
	if v > high {
		return high
	}
	return v
}

// toF16 rounds to IEEE half precision, nearest even. NaN becomes the quiet NaN
// of its sign, as in ggml.
func toF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, a := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return sign | 0x7e00
	case a >= 0x477ff000: // 65520, half way to the first number that is too large
		return sign | 0x7c00
	case a < 0x38800000: // 2^-14: below, halves are multiples of 2^-24, the ulp of 0.5
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-0x3f000000)
	}
	a += 0xfff + a>>13&1
	return sign | uint16((a-0x38000000)>>13)
}

// fromF16 is exact. A signalling NaN becomes quiet, its payload kept.
func fromF16(h uint16) float32 {
	sign, a := uint32(h&0x8000)<<16, uint32(h&0x7fff)<<13
	if a >= 0x7c00<<13 {
		return oddF16(sign, a)
	}
	// As a float32, a is too small by the difference of the exponents' biases.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(a)*0x1p112))
}

// oddF16 returns what is no number.
func oddF16(sign, a uint32) float32 {
	if a > 0x7c00<<13 {
		a |= 0x200 << 13
	}
	return math.Float32frombits(sign | 0x7f800000 | a)
}

// toBF16 keeps the upper half, rounded to nearest even; NaN stays NaN.
func toBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 64
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

func putF16(dst []byte, f float32) { binary.LittleEndian.PutUint16(dst, toF16(f)) }

func getF16(src []byte) float32 { return fromF16(binary.LittleEndian.Uint16(src)) }

// toF8 rounds to an 8-bit float with the given number of mantissa bits and
// exponent bias, nearest even; the caller has dealt with numbers that are too
// large and with NaN. The result has no sign.
func toF8(a uint32, mantissa, bias uint32) byte {
	exp := int32(a>>23) - 127 + int32(bias)
	man := a&0x7fffff | 0x800000
	shift := 23 - mantissa
	if exp <= 0 { // subnormal: the unit is 2^(1-bias-mantissa)
		shift += uint32(1 - exp)
		exp = 0
		if shift > 25 {
			return 0
		}
		half := uint32(1)<<(shift-1) - 1 + man>>shift&1
		return byte((man + half) >> shift)
	}
	half := uint32(1)<<(shift-1) - 1 + man>>shift&1
	// The hidden bit adds one to the exponent field.
	return byte(uint32(exp-1)<<mantissa + (man+half)>>shift)
}

// toE4M3 rounds to F8_E4M3FN. Numbers beyond 448 become ±448, NaN stays NaN.
func toE4M3(f float32) byte {
	b := math.Float32bits(f)
	sign, a := byte(b>>24&0x80), b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return sign | 0x7f
	case a >= 0x43e00000: // 448
		return sign | 0x7e
	}
	return sign | toF8(a, 3, 7)
}

// toE5M2 rounds to F8_E5M2, which has infinities.
func toE5M2(f float32) byte {
	b := math.Float32bits(f)
	sign, a := byte(b>>24&0x80), b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return sign | 0x7e
	case a >= 0x47700000: // 61440, half way from 57344 to 65536
		return sign | 0x7c
	}
	return sign | toF8(a, 2, 15)
}

// values of every code of the 8-bit floats (OCP 8-bit floating point, rev. 1.0,
// and OCP Microscaling formats for E8M0), which is cheaper than computing them.
var (
	e4m3 = codeTable(func(c uint32) float32 { return small(c, 3, 7, 15, false) })
	e5m2 = codeTable(func(c uint32) float32 { return small(c, 2, 15, 31, true) })
	e8m0 = codeTable(func(c uint32) float32 {
		switch c {
		case 0:
			return math.Float32frombits(0x00400000) // 2^-127
		case 255:
			return float32(math.NaN())
		}
		return math.Float32frombits(c << 23)
	})
)

func codeTable(value func(uint32) float32) *[256]float32 {
	var t [256]float32
	for c := range t {
		t[c] = value(uint32(c))
	}
	return &t
}

// small decodes an 8-bit float. With infinities the top exponent is IEEE's;
// without, only its last code is NaN.
func small(c, mantissa, bias, top uint32, infinities bool) float32 {
	sign := c & 0x80 << 24
	exp, man := c&0x7f>>mantissa, c&(1<<mantissa-1)
	switch {
	case exp == top && infinities && man == 0:
		return math.Float32frombits(sign | 0x7f800000)
	case exp == top && (infinities || man == 1<<mantissa-1):
		return math.Float32frombits(sign | 0x7fc00000)
	case exp == 0:
		v := float32(man) * math.Float32frombits((127+1-bias-mantissa)<<23)
		return math.Float32frombits(sign | math.Float32bits(v))
	}
	return math.Float32frombits(sign | (exp+127-bias)<<23 | man<<(23-mantissa))
}

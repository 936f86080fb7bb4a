package lanesum

import (
	"math"

	"github.com/x448/float16"
)

// block is how many products go into the vectors at a time.
const block = 128

// Dot16 returns the sum of a[i]·b[i], a being f16 numbers widened to float32 and b
// f16 bits. b must be as long as a.
func Dot16(a []float32, b []uint16) float32 {
	b = b[:len(a)]
	whole := len(a) &^ (block - 1)
	var sum float64
	if whole > 0 {
		sum = float64(dot16Blocks(a[:whole], b[:whole]))
	}
	return float32(sum + tail(a[whole:], b[whole:]))
}

func tailGeneric(a []float32, b []uint16) float64 {
	var sum float64
	for i, v := range b {
		sum += float64(a[i] * float16.Frombits(v).Float32())
	}
	return sum
}

// Round returns x rounded to f16, as bits.
func Round(x float32) uint16 { return uint16(float16.Fromfloat32(x)) }

func roundTo(x float32) float32 { return float16.Fromfloat32(x).Float32() }

// dot16Generic is the plain twin of the kernel; len(a) is a positive multiple of block.
func dot16Generic(a []float32, b []uint16) float32 {
	var lanes [block]float32
	for i := 0; i < len(a); i += block {
		for j := range lanes {
			lanes[j] = fused(a[i+j], float16.Frombits(b[i+j]).Float32(), lanes[j])
		}
	}
	for half := block / 2; half > 0; half /= 2 {
		for j := range half {
			lanes[j] = roundTo(lanes[j] + lanes[j+half])
		}
	}
	return lanes[0]
}

func widenGeneric(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = float16.Frombits(v).Float32()
	}
}

func narrowGeneric(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = Round(v)
	}
}

// fused returns x·y+z rounded to f16 once, for f16 numbers. The product is exact
// in f64; the sum is rounded to odd, first there and then to f32, which keeps
// later roundings as if they were the first.
func fused(x, y, z float32) float32 {
	p, w := float64(x)*float64(y), float64(z)
	s := p + w
	t := s - p
	if lost := (p - (s - t)) + (w - t); lost != 0 && math.Float64bits(s)&1 == 0 {
		s = math.Nextafter(s, s+math.Copysign(math.Abs(s), lost))
	}
	r := float32(s)
	if d := s - float64(r); d != 0 && math.Float32bits(r)&1 == 0 {
		r = math.Nextafter32(r, float32(math.Inf(int(math.Copysign(1, d)))))
	}
	return roundTo(r)
}

// block32 is how many products of f32 numbers go into the vectors at a time.
const block32 = 64

// Dot32 returns the sum of a[i]·b[i] for f32 numbers in the order of ggml's
// ggml_vec_dot_f32 with vectors of 16: four of them, added up in halves.
func Dot32(a, b []float32) float32 {
	b = b[:len(a)]
	whole := len(a) &^ (block32 - 1)
	var sum float32
	if whole > 0 {
		sum = dot32Blocks(a[:whole], b[:whole])
	}
	for i := whole; i < len(a); i++ {
		sum += float32(a[i] * b[i])
	}
	return sum
}

func dot32Generic(a, b []float32) float32 {
	var lanes [block32]float32
	for i := 0; i < len(a); i += block32 {
		for j := range lanes {
			lanes[j] = float32(math.FMA(float64(a[i+j]), float64(b[i+j]), float64(lanes[j])))
		}
	}
	for half := block32 / 2; half > 0; half /= 2 {
		for j := range half {
			lanes[j] += lanes[j+half]
		}
	}
	return lanes[0]
}

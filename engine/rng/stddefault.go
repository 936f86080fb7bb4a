package rng

import "math"

// stdDefault is libstdc++'s std::default_random_engine (minstd_rand0: 16807·x mod 2^31-1) under a fresh
// std::normal_distribution<float> per draw, so a second number left over is dropped between draws.
type stdDefault struct{ x uint64 }

const minstdMod = 1<<31 - 1

// Seed uses the low 32 bits; a residue of zero would stick, so it counts as one.
func (s *stdDefault) Seed(seed uint64) {
	if s.x = uint64(uint32(seed)) % minstdMod; s.x == 0 {
		s.x = 1
	}
}

// uniform spans [0, 1): the engine's range of 2^31-2 values is 2^31 once rounded to float32.
func (s *stdDefault) uniform() float32 {
	s.x = s.x * 16807 % minstdMod
	if u := float32(s.x-1) / (1 << 31); u < 1 {
		return u
	}
	return math.Nextafter32(1, 0)
}

func (s *stdDefault) Normal(dst []float32) {
	for i := 0; i < len(dst); i += 2 {
		var x, y, r2 float32
		for r2 == 0 || r2 > 1 { // Marsaglia's polar method: points outside the unit disc are refused
			x = 2*s.uniform() - 1
			y = 2*s.uniform() - 1
			r2 = float32(x*x) + float32(y*y)
		}
		mult := sqrtf(float32(-2*logf(r2)) / r2)
		dst[i] = y * mult
		if i+1 < len(dst) {
			dst[i+1] = x * mult
		}
	}
}

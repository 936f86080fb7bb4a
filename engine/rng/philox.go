package rng

import "math"

// Constants of Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11, table 2).
const (
	philoxM0     = 0xD2511F53
	philoxM1     = 0xCD9E8D57
	philoxW0     = 0x9E3779B9
	philoxW1     = 0xBB67AE85
	philoxRounds = 10
)

// philox draws as torch does on CUDA: element i of draw d uses counter (d, 0, i, 0) and the seed as key, and only
// the first of the Box-Muller pair.
type philox struct {
	seed uint64
	draw uint32
}

func (p *philox) Seed(seed uint64) { *p = philox{seed: seed} }

func (p *philox) Normal(dst []float32) {
	const inv float32 = 2.3283064e-10 // 2^-32 as torch's generator writes it
	const turn float32 = inv * 6.2831855
	const halfInv, halfTurn = inv / 2, turn / 2
	for i := range dst {
		c := philoxBlock([4]uint32{p.draw, 0, uint32(i), 0}, uint32(p.seed), uint32(p.seed>>32))
		u := float32(float32(c[0])*inv) + halfInv
		v := float32(float32(c[1])*turn) + halfTurn
		r := float32(math.Sqrt(-2 * math.Log(float64(u))))
		dst[i] = float32(float64(r) * math.Sin(float64(v)))
	}
	p.draw++
}

// philoxBlock runs the ten rounds on one counter.
func philoxBlock(c [4]uint32, k0, k1 uint32) [4]uint32 {
	for round := range philoxRounds {
		if round > 0 {
			k0 += philoxW0
			k1 += philoxW1
		}
		a, b := uint64(c[0])*philoxM0, uint64(c[2])*philoxM1
		c = [4]uint32{uint32(b>>32) ^ c[1] ^ k0, uint32(b), uint32(a>>32) ^ c[3] ^ k1, uint32(a)}
	}
	return c
}

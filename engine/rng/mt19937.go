package rng

import "math"

const (
	mtLen   = 624
	mtShift = 397
)

// mt19937 draws as torch.randn does on a CPU: float32 uniforms of 24 bits, then Box-Muller between the two halves
// of each block of sixteen; draws of fewer than sixteen values take a double-precision path that keeps its second
// number for the next draw.
type mt19937 struct {
	state [mtLen]uint32
	next  int
	spare float64
	has   bool
}

// Seed uses the low 32 bits, as the Mersenne twister's 32-bit initialisation takes no more.
func (m *mt19937) Seed(seed uint64) {
	m.state[0] = uint32(seed)
	for i := 1; i < mtLen; i++ {
		prev := m.state[i-1]
		m.state[i] = 1812433253*(prev^prev>>30) + uint32(i)
	}
	m.next, m.has = mtLen, false
}

func (m *mt19937) uint32() uint32 {
	if m.next == mtLen {
		m.twist()
	}
	y := m.state[m.next]
	m.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// twist makes the next 624 words (Matsumoto and Nishimura, 1998).
func (m *mt19937) twist() {
	for i := range m.state {
		u, v := m.state[i], m.state[(i+1)%mtLen]
		x := (u&0x80000000 | v&0x7fffffff) >> 1
		if v&1 != 0 {
			x ^= 0x9908b0df
		}
		m.state[i] = m.state[(i+mtShift)%mtLen] ^ x
	}
	m.next = 0
}

// uniform has the 24 bits of a float32 mantissa, in [0, 1).
func (m *mt19937) uniform() float32 { return float32(m.uint32()&(1<<24-1)) / (1 << 24) }

// uniform64 has 53 bits; the first word drawn is the high one.
func (m *mt19937) uniform64() float64 {
	hi := uint64(m.uint32())
	lo := uint64(m.uint32())
	return float64((hi<<32|lo)&(1<<53-1)) / (1 << 53)
}

func (m *mt19937) Normal(dst []float32) {
	if len(dst) < 16 {
		for i := range dst {
			dst[i] = float32(m.normal64())
		}
		return
	}
	for i := range dst {
		dst[i] = m.uniform()
	}
	for i := 0; i+16 <= len(dst); i += 16 {
		boxMuller16(dst[i : i+16])
	}
	// A ragged end is covered by drawing the last sixteen anew, over values already made.
	if len(dst)%16 != 0 {
		last := dst[len(dst)-16:]
		for i := range last {
			last[i] = m.uniform()
		}
		boxMuller16(last)
	}
}

func boxMuller16(d []float32) {
	const tau = 2 * float32(math.Pi)
	for j := range 8 {
		r := sqrtf(-2 * logf(1-d[j]))
		theta := tau * d[j+8]
		d[j], d[j+8] = r*cosf(theta), r*sinf(theta)
	}
}

func (m *mt19937) normal64() float64 {
	if m.has {
		m.has = false
		return m.spare
	}
	u1, u2 := m.uniform64(), m.uniform64()
	r := math.Sqrt(-2 * math.Log1p(-u2))
	theta := 2 * math.Pi * u1
	m.spare, m.has = r*math.Sin(theta), true
	return r * math.Cos(theta)
}

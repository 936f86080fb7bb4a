package sample

import (
	"math"

	"github.com/sdtool/sdtool/engine/rng"
)

// brownian is a Brownian path over noise levels that is fixed by its seed alone: levels asked for in any order and
// number lie on one path, so a run with more steps keeps the picture. Each halving of an interval draws from a seed
// derived from its place in the tree.
type brownian struct {
	low, high float64
	root      uint64
	end       []float32             // the path's value at high; it is zero at low
	known     map[float64][]float32 // values already walked to
}

const brownianDepth = 24

// newBrownian spans the positive levels of a schedule; nil when they are one point. The seed is two draws of noise.
func newBrownian(n int, sigmas []float32, noise Noise) *brownian {
	b := &brownian{low: math.Inf(1), known: map[float64][]float32{}}
	for _, s := range sigmas {
		if s > 0 {
			b.low, b.high = min(b.low, float64(s)), max(b.high, float64(s))
		}
	}
	if b.high <= b.low {
		return nil
	}
	var pair [2]float32
	noise.Normal(pair[:])
	seed := uint64(math.Float32bits(pair[0])) | uint64(math.Float32bits(pair[1]))<<32
	b.root = mix64(seed, 0x9E3779B97F4A7C15)
	b.end = normals(n, mix64(seed, 0xBF58476D1CE4E5B9))
	spread := sqrtf(float32(b.high - b.low))
	for i := range b.end {
		b.end[i] *= spread
	}
	return b
}

// mix64 is the splitmix64 finaliser after adding a salt.
func mix64(v, salt uint64) uint64 {
	z := v + salt
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func normals(n int, seed uint64) []float32 {
	out := make([]float32, n)
	rng.New(rng.StdDefault, seed).Normal(out)
	return out
}

// add adds scale times the path's unit-variance increment between two levels to x.
func (b *brownian) add(x []float32, from, to float64, scale float32) {
	high := b.at(math.Min(math.Max(max(from, to), b.low), b.high))
	low := b.at(math.Min(math.Max(min(from, to), b.low), b.high))
	unit := 1 / sqrtf(float32(max(math.Abs(to-from), 1e-12)))
	for i := range x {
		x[i] += float32(float32((high[i]-low[i])*unit) * scale)
	}
}

// at walks the tree to a level.
func (b *brownian) at(t float64) []float32 {
	if w, ok := b.known[t]; ok {
		return w
	}
	n := len(b.end)
	left, right, mid := make([]float32, n), append([]float32(nil), b.end...), make([]float32, n)
	low, high, seed := b.low, b.high, b.root
	for depth := brownianDepth; ; depth-- {
		if depth == 0 || high-low < 1e-9 {
			interpolate(mid, left, right, low, high, t)
			break
		}
		m := 0.5 * (low + high)
		std := float32(math.Sqrt((high - m) * (m - low) / (high - low)))
		for i, z := range normals(n, seed) {
			mid[i] = float32(0.5*(left[i]+right[i])) + float32(std*z)
		}
		if t == m {
			break
		}
		if t < m {
			high, seed = m, mix64(seed, 1)
			mid, right = right, mid
		} else {
			low, seed = m, mix64(seed, 2)
			mid, left = left, mid
		}
	}
	b.known[t] = mid
	return mid
}

func interpolate(dst, left, right []float32, low, high, t float64) {
	w := float32(0.5)
	if high > low {
		w = float32((t - low) / (high - low))
	}
	for i := range dst {
		dst[i] = float32((1-w)*left[i]) + float32(w*right[i])
	}
}

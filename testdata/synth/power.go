package synth

import (
	_ "embed" // for the differences of a power function
	"math"
	"sync"
)

// The Python program takes u to the fourth with numpy, which uses Intel's vector
// maths on machines with AVX-512 and the C library elsewhere. The golden data
// were made with the former, whose result is often the float32 beside the right
// one. powulp.bin has those differences, +1, for each column of the 2-D weights
// of Flux(1, 512) in order: base-3 digits, five a byte, first lowest.
//
//go:embed powulp.bin
var powerDifferences []byte

// goldenPrefix is what the golden conversions put before the model's names.
const goldenPrefix = "model.diffusion_model."

// goldenWeight is where the columns of a weight begin, and how many there are.
type goldenWeight struct{ first, cols int64 }

var goldenWeights = sync.OnceValue(func() map[string]goldenWeight {
	weights, next := make(map[string]goldenWeight), int64(0)
	for _, t := range Flux(1, 512) {
		if important(t) {
			weights[goldenPrefix+t.Name] = goldenWeight{next, t.Shape[1]}
			next += t.Shape[1]
		}
	}
	return weights
})

// fourthPowers replaces the columns' u by u⁴: as numpy gave it when the golden
// data were made, for other weights correctly rounded.
func fourthPowers(name string, u []float32) {
	for j, v := range u {
		u[j] = float32(math.Pow(float64(v), 4))
	}
	g := goldenWeights()[name]
	if g.cols != int64(len(u)) {
		return
	}
	for j, v := range u {
		at := g.first + int64(j)
		digit := powerDifferences[at/5]
		for range at % 5 {
			digit /= 3
		}
		u[j] = math.Float32frombits(math.Float32bits(v) + uint32(digit%3) - 1)
	}
}

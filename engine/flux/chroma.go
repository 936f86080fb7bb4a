package flux

import (
	"math"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/nn"
)

// Chroma is FLUX.1 schnell with what modulates the layers taken out of them: one small
// network makes all modulations from the time and their numbers (lodestones' published
// model code). There is neither a pooled text nor a guidance to tell it.
const (
	approximator = "distilled_guidance_layer"
	chromaWidth  = 64 // of what the small network is fed: a quarter for the time, one for guidance, half for the number
)

// modulationRows is how many vectors modulate the layers: shift, scale and gate of each
// single block, twice those of each stream of a double block, and the last layer's shift
// and scale.
func (c Config) modulationRows() int64 { return int64(3*c.Single + 12*c.Double + 2) }

// numbered is what the small network is fed at a time: [modulationRows, chromaWidth].
func (c Config) numbered(time float32) []float32 {
	var out []float32
	at := wave(time*timeScale, chromaWidth/4)
	at = append(at, wave(0, chromaWidth/4)...) // no guidance
	for i := range c.modulationRows() {
		out = append(append(out, at...), wave(float32(i*timeScale), chromaWidth/2)...)
	}
	return out
}

// wave is the embedding of a time: cosines, then sines, rounded where f32 code rounds,
// since angles go up to 10^5.
func wave(time float32, width int) []float32 {
	half := width / 2
	out := make([]float32, width)
	for i := range half {
		rate := float32(math.Exp(float64(float32(-math.Log(theta)) * float32(i) / float32(half))))
		angle := float64(float32(time * rate))
		out[i], out[half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
	}
	return out
}

// approximate is the small network: [1, modulationRows, hidden].
func (c Config) approximate(b graph.Builder, x graph.Tensor) graph.Tensor {
	b = b.In(approximator)
	x = nn.Linear(b.In("in_proj"), x)
	for i := range c.Layers {
		x = b.Add(x, nn.MLP(b.Inf("layers.%d", i), "in_layer", "out_layer", nn.RMSNorm(b.Inf("norms.%d", i), "scale", x, eps)))
	}
	return nn.Linear(b.In("out_proj"), x)
}

// hide is the mask [tokens, tokens] of text and patches: what the text's mask has is
// added to the scores of its tokens as keys.
func hide(mask []float32, all int64) []float32 {
	out := make([]float32, all*all)
	for q := range all {
		copy(out[q*all:], mask)
	}
	return out
}

package engine

import (
	"context"
	"fmt"

	"github.com/sdtool/sdtool/engine/clip"
	"github.com/sdtool/sdtool/engine/flux"
	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/engine/vae"
)

// How many T5 tokens the networks read at a time, and how much of the padding Chroma is
// shown: what stable-diffusion.cpp does.
const (
	fluxTokens    = 256
	chromaTokens  = 512
	chromaPadding = 1
)

// fluxModel is FLUX.1, where CLIP-L gives the pooled text and T5 the text, or Chroma,
// where there is T5 alone.
type fluxModel struct {
	device  *graph.Device
	weights *graph.Weights
	options graph.Options
	about   Traits
	shift   float32
	tokens  int // of a chunk of text

	text    *encoders
	config  flux.Config
	net     *flux.Net // compiled for:
	netSize [3]int64
	decoder *decoder
}

func isFlux(c *checkpoint) bool {
	_, ok := flux.Detect(c.shape)
	return ok
}

func openFlux(c *checkpoint) (network, error) {
	f := &fluxModel{device: c.device, weights: c.weights, options: graph.Options{FlashAttention: c.options.FlashAttention}}
	f.config, _ = flux.Detect(c.shape)
	if f.config.Patch != f.config.Out {
		return nil, fmt.Errorf("%w: the network takes patches of %d values and gives %d: FLUX Fill, Canny and Depth need a picture to start from",
			ErrUnknownFamily, f.config.Patch, f.config.Out)
	}
	pictures, v, err := findDecoder(c, f.config.Channels(), 0.3611, 0.1159)
	if err != nil {
		return nil, err
	}
	f.about = transformerTraits("FLUX.1 schnell", f.config.Channels(), pictures)
	f.about.Guidance, f.shift = 1, 1 // trained to do without a negative prompt
	f.tokens = fluxTokens
	switch {
	case f.config.Chroma():
		f.about.Name, f.about.Guidance, f.tokens = "Chroma", 7, chromaTokens
	case f.config.Guidance:
		f.about.Name, f.shift = "FLUX.1 dev", 1.15
	}
	if s := c.options.FlowShift; s > 0 {
		f.shift = s
	}
	if f.text, err = openEncoders(c, f.options, clip.Skip{State: true, PooledOnly: true}, clip.Skip{}); err != nil {
		return nil, err
	}
	f.text.g = nil // a second tower is not read
	if f.config.Chroma() {
		f.text.l = nil
		if f.text.t5 == nil {
			return nil, fmt.Errorf("%w: no tensors below %s", ErrNoTextEncoder, t5Path)
		}
	}
	if l := f.text.l; l != nil {
		if err := fits("a pooled text", l.config.Width, f.config.Vector); err != nil {
			return nil, err
		}
	}
	if t := f.text.t5; t != nil {
		if err := fits("a text", t.Width, f.config.Context); err != nil {
			return nil, err
		}
	}
	f.decoder = newDecoder(c.device, c.weights, v, f.options)
	return f, f.ask(pictures)
}

// ask compiles everything once at the smallest size.
func (f *fluxModel) ask(pictures bool) error {
	if err := f.text.ask(f.tokens); err != nil {
		return err
	}
	net, err := flux.Compile(f.device, f.weights, f.config, f.options, 2, 2, int64(f.tokens))
	if err != nil {
		return err
	}
	net.Close()
	if pictures {
		return f.decoder.ask()
	}
	return nil
}

func (f *fluxModel) traits() Traits { return f.about }

func (f *fluxModel) close() {
	f.text.close()
	if f.net != nil {
		f.net.Close()
	}
	f.decoder.close()
}

func (f *fluxModel) denoiser(context.Context) (*sample.Model, error) {
	return sample.NewModel(sample.FluxFlow, sample.ModelOptions{Shift: f.shift})
}

func (f *fluxModel) encode(ctx context.Context, r textRequest) (*condition, error) {
	pooled, err := f.text.clip(ctx, f.text.l, r.text, 1)
	if err != nil {
		return nil, err
	}
	chunks, err := f.text.t5Chunks(ctx, r.text, f.tokens)
	if err != nil {
		return nil, err
	}
	if chunks == nil {
		chunks = [][]float32{make([]float32, int64(f.tokens)*f.config.Context)}
	}
	out := &condition{vector: pooled.pooled, guidance: r.guidance, tokens: int64(len(chunks) * f.tokens)}
	if f.config.Chroma() {
		out.vector = f.text.t5Mask(r.text, f.tokens, chromaPadding)
	}
	if out.vector == nil {
		out.vector = make([]float32, f.config.Vector)
	}
	for _, chunk := range chunks {
		out.text = append(out.text, chunk...)
	}
	return out, nil
}

func (f *fluxModel) predict(ctx context.Context, x []float32, size latentSize, time float32, c *condition) ([]float32, error) {
	want := [3]int64{size.height, size.width, c.tokens}
	if f.net == nil || f.netSize != want {
		if f.net != nil {
			f.net.Close()
			f.net = nil
		}
		net, err := flux.Compile(f.device, f.weights, f.config, f.options, size.height, size.width, c.tokens)
		if err != nil {
			return nil, err
		}
		f.net, f.netSize = net, want
	}
	return f.net.Run(ctx, x, time, c.text, c.vector, c.guidance)
}

func (f *fluxModel) decode(ctx context.Context, x []float32, size latentSize) ([]float32, error) {
	return f.decoder.decode(ctx, x, size)
}

// transformerTraits are those that transformers share.
func transformerTraits(name string, channels int64, pictures bool) Traits {
	return Traits{
		Name: name, Multiple: 16, Factor: 8, Channels: int(channels), Pictures: pictures, ClipSkip: 2,
		Schedule: sample.OtherFamily, Method: sample.Euler, Guidance: 7, ImageSide: 1024,
	}
}

// findDecoder detects the autoencoder, if pictures are wanted, of latents with the
// given channels.
func findDecoder(c *checkpoint, channels int64, scale, shift float32) (pictures bool, config vae.Config, err error) {
	if c.options.NoPictures {
		return false, config, nil
	}
	config, found := vae.Detect(c.shape)
	config.Scale, config.Shift = scale, shift
	switch {
	case !found:
		return false, config, missingDecoder()
	case config.Latent != channels:
		return false, config, fmt.Errorf("%w that fits: the network's latents have %d channels, the VAE takes %d", ErrNoDecoder, channels, config.Latent)
	}
	return true, config, nil
}

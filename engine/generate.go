package engine

import (
	"context"
	"fmt"
	"image"
	"time"

	"github.com/sdtool/sdtool/engine/rng"
	"github.com/sdtool/sdtool/engine/sample"
)

// Generate makes pictures from a prompt. All latents of a batch are computed
// before the first is decoded.
func (m *Model) Generate(ctx context.Context, p Params, h Hooks) ([]*image.NRGBA, error) {
	if err := p.check(m.Traits()); err != nil {
		return nil, err
	}
	g := &generation{model: m, params: p, hooks: h}
	if err := g.plan(ctx); err != nil {
		return nil, err
	}
	latents := make([][]float32, p.Batch)
	for i := range latents {
		x, err := g.sample(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("picture %d of %d: %w", i+1, p.Batch, err)
		}
		latents[i] = x
	}
	if p.NoPictures {
		return nil, nil
	}
	images := make([]*image.NRGBA, p.Batch)
	for i, x := range latents {
		var err error
		if images[i], err = g.picture(ctx, x); err != nil {
			return nil, fmt.Errorf("picture %d of %d: %w", i+1, p.Batch, err)
		}
		if h.Done != nil {
			if err := h.Done(i, images[i]); err != nil {
				return nil, err
			}
		}
	}
	return images, nil
}

// generation is one call of Generate.
type generation struct {
	model  *Model
	params Params
	hooks  Hooks

	size         latentSize
	method       sample.Method
	sigmas       []float32
	eta          float32
	cond, uncond *condition
	// latest prediction without guidance, for samplers that ask
	unguided []float32
}

// plan settles what the parameters leave open and encodes the prompts.
func (g *generation) plan(ctx context.Context) error {
	if g.params.Guidance == ModelGuidance {
		g.params.Guidance = g.model.Traits().Guidance
	}
	p, t := g.params, g.model.Traits()
	g.size = latentSize{int64(t.Channels), int64(p.Height / t.Factor), int64(p.Width / t.Factor)}
	g.method = t.Method
	if p.Method != nil {
		g.method = *p.Method
	}
	g.eta = g.method.DefaultEta()
	if p.Eta != nil {
		g.eta = *p.Eta
	}
	if err := g.schedule(t); err != nil {
		return err
	}
	start := time.Now()
	net := g.model.net
	r := textRequest{text: p.Prompt, clipSkip: p.ClipSkip, width: p.Width, height: p.Height, guidance: p.Distilled}
	var err error
	if g.cond, err = net.encode(ctx, r); err != nil {
		return fmt.Errorf("encode the prompt: %w", err)
	}
	if p.Guidance != 1 {
		r.text, r.negative = p.Negative, true
		if g.uncond, err = net.encode(ctx, r); err != nil {
			return fmt.Errorf("encode the negative prompt: %w", err)
		}
	}
	if g.hooks.Encoded != nil {
		g.hooks.Encoded(time.Since(start))
	}
	return nil
}

func (g *generation) schedule(t Traits) error {
	p := g.params
	if len(p.Sigmas) > 0 {
		g.sigmas = p.Sigmas
		return nil
	}
	scheduler := sample.DefaultScheduler(g.model.Prediction(), g.method)
	if p.Scheduler != nil {
		scheduler = *p.Scheduler
	}
	var err error
	g.sigmas, err = g.model.denoiser.Sigmas(scheduler, p.Steps, sample.ScheduleOptions{
		Family: t.Schedule, Tokens: int(g.size.height * g.size.width), Args: p.Args,
	})
	return err
}

// sample computes the latent of one picture of the batch.
func (g *generation) sample(ctx context.Context, index int) ([]float32, error) {
	p, d := g.params, g.model.denoiser
	seed := uint64(p.Seed) + uint64(index)
	// A sampler without a generator of its own goes on in the stream that the
	// first noise came from.
	source := rng.New(p.RNG, seed)
	later := source
	if p.SamplerRNG != nil && *p.SamplerRNG != p.RNG {
		later = rng.New(*p.SamplerRNG, seed)
	}
	noise := make([]float32, g.size.elements())
	source.Normal(noise)
	x := make([]float32, len(noise))
	d.AddNoise(x, make([]float32, len(noise)), noise, g.sigmas[0])
	begun := time.Now()
	last := 0
	denoise := func(ctx context.Context, x []float32, sigma float32, step int) ([]float32, error) {
		s := Step{Image: index + 1, Images: p.Batch, Step: max(step, -step), Steps: len(g.sigmas) - 1}
		if s.Step != last && g.hooks.Begin != nil {
			g.hooks.Begin(s)
		}
		last = s.Step
		out, err := g.denoise(ctx, x, sigma)
		if err != nil {
			return nil, err
		}
		if step > 0 {
			s.Took, begun = time.Since(begun), time.Now()
			err = g.report(ctx, s, out)
		}
		return out, err
	}
	x, err := sample.Run(ctx, g.method, x, g.sigmas, denoise, sample.Options{
		Noise: later, Eta: g.eta, Flow: d.IsFlow(), Args: p.Args,
		Uncond: func() []float32 { return g.unguided },
	})
	if err != nil {
		return nil, err
	}
	d.Finish(x, g.sigmas[len(g.sigmas)-1])
	return x, nil
}

// denoise predicts the latent without noise, guided.
func (g *generation) denoise(ctx context.Context, x []float32, sigma float32) ([]float32, error) {
	d := g.model.denoiser
	scale, time := d.Scalings(sigma), d.Timestep(sigma)
	in := make([]float32, len(x))
	for i, v := range x {
		in[i] = v * scale.In
	}
	out, err := g.model.net.predict(ctx, in, g.size, time, g.cond)
	if err != nil {
		return nil, err
	}
	base := out
	if g.uncond != nil {
		if base, err = g.model.net.predict(ctx, in, g.size, time, g.uncond); err != nil {
			return nil, err
		}
		guided := make([]float32, len(out))
		for i, u := range base {
			guided[i] = u + float32(g.params.Guidance*(out[i]-u))
		}
		out = guided
	}
	if g.method.NeedsUncond() {
		g.unguided = make([]float32, len(x))
		scale.Denoised(g.unguided, base, x)
	}
	denoised := make([]float32, len(x))
	scale.Denoised(denoised, out, x)
	return denoised, nil
}

func (g *generation) report(ctx context.Context, s Step, denoised []float32) error {
	h := g.hooks
	if h.Step != nil {
		h.Step(s)
	}
	if h.Preview == nil || h.PreviewEvery < 1 || s.Step%h.PreviewEvery != 0 {
		return nil
	}
	img, err := g.picture(ctx, denoised)
	if err == nil {
		h.Preview(s, img)
	}
	return err
}

// picture decodes a latent.
func (g *generation) picture(ctx context.Context, latent []float32) (*image.NRGBA, error) {
	t := g.model.Traits()
	pixels, err := g.model.net.decode(ctx, latent, g.size)
	if err != nil {
		return nil, err
	}
	return toImage(pixels, int(g.size.width)*t.Factor, int(g.size.height)*t.Factor), nil
}

// toImage makes an image of [3, height, width] values, -1 being black and 1 full.
func toImage(pixels []float32, width, height int) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	plane := width * height
	for i := range plane {
		for c := range 3 {
			img.Pix[4*i+c] = toByte((pixels[c*plane+i] + 1) * 0.5)
		}
		img.Pix[4*i+3] = 0xff
	}
	return img
}

func toByte(v float32) uint8 {
	switch {
	case !(v > 0):
		return 0
	case v >= 1:
		return 255
	}
	return uint8(float32(v*255) + 0.5)
}

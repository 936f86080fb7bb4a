package sample

import (
	"context"
	"errors"
	"fmt"
)

// Method names a sampler.
type Method uint8

// The samplers, in the order other tools list them.
const (
	Euler Method = iota
	EulerA
	Heun
	DPM2
	DPMPP2SA
	DPMPP2M
	DPMPP2Mv2
	IPNDM
	IPNDMV
	LCM
	DDIMTrailing
	TCD
	ResMultistep
	Res2S
	ERSDE
	EulerCFGPP
	EulerACFGPP
	EulerGE
	DPMPP2MSDE
	DPMPP2MSDEBT
	LMS
)

// Denoise returns the denoised latent predicted from x at noise level sigma.
//
// step counts from 1; a sampler that looks twice within a step passes -step the first time, so that a positive step
// marks the end of one. x must not be changed. The result may be reused by the next call.
type Denoise func(ctx context.Context, x []float32, sigma float32, step int) ([]float32, error)

// Noise yields standard-normal numbers: one call is one tensor of noise. The sources of package rng are such.
type Noise interface {
	Normal(dst []float32)
}

// Options tune a run.
type Options struct {
	// Noise is needed by the samplers that add noise: Method.NeedsNoise.
	Noise Noise
	// Eta is how much noise is added back, 0 for none: Method.DefaultEta gives the usual value.
	Eta float32
	// Flow selects rectified-flow noising: Model.IsFlow.
	Flow bool
	// Uncond returns what Denoise would have returned without guidance, for its latest call: needed when
	// Method.NeedsUncond.
	Uncond func() []float32
	Args   Args
}

// ErrMissingOption is wrapped when a sampler lacks an option it cannot run without.
var ErrMissingOption = errors.New("missing sampling option")

type methodTraits struct {
	name   string
	eta    float32
	noise  bool
	uncond bool
	run    func(*run) error
}

// methods has a row per sampler.
var methods = [...]methodTraits{
	Euler:        {name: "euler", run: (*run).euler},
	EulerA:       {name: "euler_a", eta: 1, noise: true, run: (*run).eulerAncestral},
	Heun:         {name: "heun", run: (*run).heun},
	DPM2:         {name: "dpm2", run: (*run).dpm2},
	DPMPP2SA:     {name: "dpm++2s_a", eta: 1, noise: true, run: (*run).dpmpp2sAncestral},
	DPMPP2M:      {name: "dpm++2m", run: (*run).dpmpp2m},
	DPMPP2Mv2:    {name: "dpm++2mv2", run: (*run).dpmpp2mv2},
	IPNDM:        {name: "ipndm", run: (*run).ipndm},
	IPNDMV:       {name: "ipndm_v", run: (*run).ipndmV},
	LCM:          {name: "lcm", noise: true, run: (*run).lcm},
	DDIMTrailing: {name: "ddim_trailing", noise: true, run: (*run).eulerAncestral},
	TCD:          {name: "tcd", noise: true, run: (*run).tcd},
	ResMultistep: {name: "res_multistep", noise: true, run: (*run).resMultistep},
	Res2S:        {name: "res_2s", noise: true, run: (*run).res2s},
	ERSDE:        {name: "er_sde", eta: 1, noise: true, run: (*run).erSDE},
	EulerCFGPP:   {name: "euler_cfg_pp", uncond: true, run: (*run).eulerCFGPP},
	EulerACFGPP:  {name: "euler_a_cfg_pp", eta: 1, noise: true, uncond: true, run: (*run).eulerAncestralCFGPP},
	EulerGE:      {name: "euler_ge", noise: true, run: (*run).eulerGE},
	DPMPP2MSDE:   {name: "dpm++2m_sde", eta: 1, noise: true, run: (*run).dpmpp2mSDE},
	DPMPP2MSDEBT: {name: "dpm++2m_sde_bt", eta: 1, noise: true, run: (*run).dpmpp2mSDE},
	LMS:          {name: "lms", run: (*run).lms},
}

// Methods lists every sampler.
func Methods() []Method { return enumerate[Method](len(methods)) }

// String returns the command-line name.
func (m Method) String() string {
	if int(m) < len(methods) {
		return methods[m].name
	}
	return fmt.Sprintf("sampler(%d)", uint8(m))
}

// ParseMethod turns a command-line name into a Method.
func ParseMethod(name string) (Method, error) {
	names := make([]string, len(methods))
	for i, t := range methods {
		if t.name == name {
			return Method(i), nil
		}
		names[i] = t.name
	}
	return 0, fmt.Errorf("unknown sampler %q: expected one of %v", name, names)
}

// DefaultEta is the eta a run uses when none is asked for.
func (m Method) DefaultEta() float32 { return methods[m].eta }

// NeedsNoise tells whether the sampler may draw noise.
func (m Method) NeedsNoise() bool { return methods[m].noise }

// NeedsUncond tells whether the sampler needs Options.Uncond.
func (m Method) NeedsUncond() bool { return methods[m].uncond }

// run is one walk down the noise levels.
type run struct {
	ctx    context.Context
	call   Denoise
	o      Options
	x      []float32 // the latent, updated in place
	sigmas []float32
	tree   *brownian // noise for DPMPP2MSDEBT; nil draws from o.Noise
	buf    []float32
}

// Run walks x from noise level sigmas[0] to the last, calling denoise along the way, and returns the result in a new
// slice; x is left alone. Memory: up to eight latents beside it.
//
// It fails when an option the method needs is missing, when ctx is done, when denoise fails or returns a slice of
// another length.
func Run(ctx context.Context, m Method, x, sigmas []float32, denoise Denoise, o Options) ([]float32, error) {
	if int(m) >= len(methods) {
		return nil, fmt.Errorf("unknown sampler %v", m)
	}
	t := methods[m]
	switch {
	case len(sigmas) < 2:
		return nil, fmt.Errorf("sampler %s: expected at least 2 noise levels, found %d", t.name, len(sigmas))
	case t.noise && o.Noise == nil:
		return nil, fmt.Errorf("sampler %s: %w: a noise source", t.name, ErrMissingOption)
	case t.uncond && o.Uncond == nil:
		return nil, fmt.Errorf("sampler %s: %w: the prediction without guidance", t.name, ErrMissingOption)
	}
	r := &run{ctx: ctx, call: denoise, o: o, sigmas: sigmas}
	r.x = append(make([]float32, 0, len(x)), x...)
	if m == DPMPP2MSDEBT {
		if r.tree = newBrownian(len(x), sigmas, o.Noise); r.tree == nil {
			return r.x, nil
		}
	}
	if err := t.run(r); err != nil {
		return nil, fmt.Errorf("sampler %s: %w", t.name, err)
	}
	return r.x, nil
}

func (r *run) steps() int { return len(r.sigmas) - 1 }

// denoise calls back with the position in the schedule; half marks the first of two looks within a step.
func (r *run) denoise(x []float32, sigma float32, i int, half bool) ([]float32, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	step := i + 1
	if half {
		step = -step
	}
	out, err := r.call(r.ctx, x, sigma, step)
	if err != nil {
		return nil, fmt.Errorf("step %d of %d: %w", i+1, r.steps(), err)
	}
	if len(out) != len(x) {
		return nil, fmt.Errorf("step %d of %d: denoised latent: expected %d values, found %d",
			i+1, r.steps(), len(x), len(out))
	}
	return out, nil
}

// uncond returns the unguided prediction that belongs to the latest denoise call.
func (r *run) uncond(i int) ([]float32, error) {
	out := r.o.Uncond()
	if len(out) != len(r.x) {
		return nil, fmt.Errorf("step %d of %d: prediction without guidance: expected %d values, found %d",
			i+1, r.steps(), len(r.x), len(out))
	}
	return out, nil
}

// draw returns a tensor of noise, overwritten by the next draw.
func (r *run) draw() []float32 {
	if r.buf == nil {
		r.buf = make([]float32, len(r.x))
	}
	r.o.Noise.Normal(r.buf)
	return r.buf
}

// addNoise draws and adds noise·scale to the latent.
func (r *run) addNoise(scale float32) {
	for i, n := range r.draw() {
		r.x[i] += float32(n * scale)
	}
}

// blend sets the latent to a·x + b·y.
func (r *run) blend(a, b float32, y []float32) {
	for i := range r.x {
		r.x[i] = float32(a*r.x[i]) + float32(b*y[i])
	}
}

func (r *run) scale(f float32) {
	for i := range r.x {
		r.x[i] *= f
	}
}

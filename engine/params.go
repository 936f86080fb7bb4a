package engine

import (
	"fmt"
	"image"
	"time"

	"github.com/sdtool/sdtool/engine/rng"
	"github.com/sdtool/sdtool/engine/sample"
)

// Params say what to generate. Pointers that are nil mean the model's own choice.
type Params struct {
	Prompt, Negative string
	Width, Height    int // multiples of Traits.Multiple; FitSize rounds up
	Steps            int
	Guidance         float32 // classifier-free guidance scale; 1 is without; ModelGuidance is the model's own
	Distilled        float32 // guidance that distilled networks, as FLUX dev, are told
	Method           *sample.Method
	Scheduler        *sample.Scheduler
	Sigmas           []float32 // noise levels to use instead of a scheduler's
	Eta              *float32
	Args             sample.Args
	Seed             int64 // of the first picture; each further one has the next
	Batch            int
	RNG              rng.Kind
	SamplerRNG       *rng.Kind // of noise added while sampling; nil is RNG
	ClipSkip         int       // layers from the end whose output is used; 0 is the model's own
	// NoPictures stops before decoding: Generate returns no images.
	NoPictures bool
}

// ModelGuidance as Params.Guidance means Traits.Guidance.
const ModelGuidance = -1

// DefaultParams returns what stable-diffusion.cpp's command line defaults to.
func DefaultParams() Params {
	return Params{Width: 512, Height: 512, Steps: 20, Guidance: 7, Distilled: 3.5, Seed: 42, Batch: 1, RNG: rng.CUDA}
}

// Limits of Params.
const (
	MaxSide  = 1 << 14 // pixels along a side
	MaxBatch = 1 << 16 // pictures of one prompt
)

func (p Params) check(t Traits) error {
	switch {
	case p.Width < 1 || p.Height < 1 || p.Width > MaxSide || p.Height > MaxSide:
		return fmt.Errorf("picture of %d by %d: sides go from 1 to %d", p.Width, p.Height, MaxSide)
	case p.Width%t.Multiple != 0 || p.Height%t.Multiple != 0:
		return fmt.Errorf("picture of %d by %d: sides must be multiples of %d", p.Width, p.Height, t.Multiple)
	case p.Steps < 1 && len(p.Sigmas) == 0:
		return fmt.Errorf("%d steps, expected at least one", p.Steps)
	case p.Batch < 1 || p.Batch > MaxBatch:
		return fmt.Errorf("batch of %d, expected 1 to %d", p.Batch, MaxBatch)
	case p.ClipSkip < 0:
		return fmt.Errorf("clip skip %d is negative", p.ClipSkip)
	case len(p.Sigmas) == 1:
		return fmt.Errorf("one noise level, expected at least two")
	case !t.Pictures && !p.NoPictures:
		return ErrNoDecoder
	}
	return nil
}

// FitSize rounds a picture's sides up to what the model can make.
func (t Traits) FitSize(width, height int) (int, int) {
	up := func(n int) int { return (n + t.Multiple - 1) / t.Multiple * t.Multiple }
	return up(width), up(height)
}

// Step tells what has been done.
type Step struct {
	Image, Images int // from 1
	Step, Steps   int // from 1
	Took          time.Duration
}

// Hooks are told what goes on; all may be nil. They run between network runs.
type Hooks struct {
	// Encoded is told when prompts have been encoded.
	Encoded func(took time.Duration)
	// Begin is told before a step's first network run. Image and step count from 1.
	Begin func(Step)
	// Step is told after a step.
	Step func(Step)
	// Preview is given the decoded state every PreviewEvery steps; needs a decoder.
	Preview      func(s Step, img *image.NRGBA)
	PreviewEvery int
	// Done is given each picture as it is finished.
	Done func(index int, img *image.NRGBA) error
}

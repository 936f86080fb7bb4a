package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/engine/vae"
	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/lanesum"
	"github.com/sdtool/sdtool/tensor"
)

// ErrUnknownFamily is wrapped when the tensors are of no family the engine can run.
var ErrUnknownFamily = errors.New("unknown model family")

// ErrNoTextEncoder is wrapped when a model has no text encoder, so that prompts
// mean nothing to it.
var ErrNoTextEncoder = errors.New("no text encoder")

// ErrNoDecoder is wrapped when pictures are wanted of a model without a VAE.
var ErrNoDecoder = errors.New("no VAE decoder")

// family is one kind of model that the engine runs.
type family struct {
	name string // for messages
	// has reports whether the tensors are of this family.
	has func(c *checkpoint) bool
	// open detects the configuration and asks for all weights.
	open func(c *checkpoint) (network, error)
}

// families has a row per kind of model.
var families = []family{
	{"Stable Diffusion 1.x, 2.x and XL", isStableDiffusion, openStableDiffusion},
	{"Stable Diffusion 3 and 3.5", isSD3, openSD3},
	{"FLUX.1 and Chroma", isFlux, openFlux},
}

// checkpoint is what a family gets to see while it is opened.
type checkpoint struct {
	device  *graph.Device
	weights *graph.Weights
	options Options
	byName  map[string]tensor.Tensor
	names   []string
}

// shape returns a tensor's shape, nil if there is none.
func (c *checkpoint) shape(name string) []int64 {
	t, ok := c.byName[name]
	if !ok {
		return nil
	}
	return t.Shape
}

// exact reports whether products are to be exact; see Options.Fast.
func (c *checkpoint) exact() bool {
	return !c.options.Fast && c.device.Info().Kind == native.CPU && lanesum.Accelerated()
}

func (c *checkpoint) has(name string) bool { _, ok := c.byName[name]; return ok }

// network is an opened model of some family.
type network interface {
	// denoiser says how noise levels relate to what the network is told. It may
	// run the network to find out, and is called once, after weights are loaded.
	denoiser(ctx context.Context) (*sample.Model, error)
	// traits describes the model to users and samplers.
	traits() Traits
	// encode turns a prompt into what predict takes.
	encode(ctx context.Context, r textRequest) (*condition, error)
	// predict runs the network on a latent at a time.
	predict(ctx context.Context, x []float32, size latentSize, time float32, c *condition) ([]float32, error)
	// decode turns a latent into an image [3, h, w] with values from -1 to 1.
	decode(ctx context.Context, x []float32, size latentSize) ([]float32, error)
	close()
}

// Traits describe a loaded model.
type Traits struct {
	Name      string // such as "SDXL base"
	Multiple  int    // image sides are multiples of this
	Factor    int    // image pixels per latent pixel, along a side
	Channels  int    // of the latent
	Pictures  bool   // it has a decoder
	ClipSkip  int    // used when none is asked for
	Schedule  sample.Family
	Method    sample.Method // used when none is asked for
	Guidance  float32       // used when none is asked for
	ImageSide int           // used when no size is asked for
}

// textRequest is what encoding a prompt depends on.
type textRequest struct {
	text          string
	negative      bool    // it is the prompt to steer away from
	clipSkip      int     // 0 is the family's own
	width, height int     // of the picture
	guidance      float32 // that networks take which were distilled from guided ones
}

// condition is an encoded prompt.
type condition struct {
	text   []float32 // [tokens, width]
	tokens int64
	vector []float32 // what some networks take beside it
	// guidance is what distilled networks are told.
	guidance float32
}

func missingDecoder() error {
	return fmt.Errorf("%w: tensor %q is missing", ErrNoDecoder, vae.Prefix+".decoder.conv_in.weight")
}

// latentSize is the size of a latent in its own pixels.
type latentSize struct{ channels, height, width int64 }

func (s latentSize) elements() int64 { return s.channels * s.height * s.width }

// find returns the family of the tensors.
func find(c *checkpoint) (family, error) {
	var names []string
	for _, f := range families {
		if f.has(c) {
			return f, nil
		}
		names = append(names, f.name)
	}
	seen := c.names
	if len(seen) > 3 {
		seen = seen[:3]
	}
	return family{}, fmt.Errorf("%w: the engine runs %s; found %d tensors such as %q",
		ErrUnknownFamily, strings.Join(names, ", "), len(c.names), seen)
}

package engine

import (
	"context"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/vae"
)

// decoder turns latents into pictures; it is compiled anew when the size changes.
type decoder struct {
	device  *graph.Device
	weights *graph.Weights
	config  vae.Config
	options graph.Options

	compiled *vae.Decoder // nil before the first picture
	size     [2]int64
}

func newDecoder(d *graph.Device, w *graph.Weights, c vae.Config, o graph.Options) *decoder {
	// Nothing is fed back from a picture, so that the order of its sums shows in the
	// last bit of a few pixels only.
	o.Exact = false
	return &decoder{device: d, weights: w, config: c, options: o}
}

// ask compiles the decoder at a small size, so that its weights are asked for.
func (d *decoder) ask() error {
	const side = 8
	dec, err := vae.Compile(d.device, d.weights, d.config, d.options, side, side)
	if err != nil {
		return err
	}
	dec.Close()
	return nil
}

func (d *decoder) decode(ctx context.Context, x []float32, size latentSize) ([]float32, error) {
	want := [2]int64{size.height, size.width}
	if d.compiled == nil || d.size != want {
		d.close()
		dec, err := vae.Compile(d.device, d.weights, d.config, d.options, size.height, size.width)
		if err != nil {
			return nil, err
		}
		d.compiled, d.size = dec, want
	}
	return d.compiled.Decode(ctx, x)
}

func (d *decoder) close() {
	if d.compiled != nil {
		d.compiled.Close()
		d.compiled = nil
	}
}

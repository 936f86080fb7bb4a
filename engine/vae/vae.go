package vae

import (
	"context"
	"fmt"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/nn"
	"github.com/sdtool/sdtool/tensor"
)

// Prefix is the module path of the autoencoder in a checkpoint.
const Prefix = "first_stage_model"

// Config is what a checkpoint's shapes and its family say about the decoder.
type Config struct {
	Latent int64 // channels of the latent
	Levels int   // resolutions; the image is 2^(Levels-1) times the latent's size
	// Scale and Shift relate the latents networks see to the decoder's:
	// decoder = latent/Scale + Shift.
	Scale, Shift float32
	// InputScale is put on the input of convolutions and taken off after, since
	// SDXL's decoder overflows f16 without; 0 means 1.
	InputScale float32
}

// Factor is how many pixels a latent pixel becomes, along each side.
func (c Config) Factor() int64 { return 1 << (c.Levels - 1) }

// Detect reads the shapes; ok is false if there is no decoder.
func Detect(shape func(name string) []int64) (c Config, ok bool) {
	first := shape(Prefix + ".decoder.conv_in.weight")
	if len(first) != 4 {
		return c, false
	}
	c.Latent = first[1]
	for shape(fmt.Sprintf("%s.decoder.up.%d.block.0.conv1.weight", Prefix, c.Levels)) != nil {
		c.Levels++
	}
	return c, c.Levels > 0
}

// Decoder is the decoder compiled for one latent size.
type Decoder struct {
	Config
	prog *graph.Program
}

// Compile builds the decoder for latents of height h and width w.
func Compile(d *graph.Device, weights *graph.Weights, c Config, o graph.Options, h, w int64) (*Decoder, error) {
	p, err := d.Compile("VAE decoder", weights, o, func(b graph.Builder) graph.Tensor {
		return c.forward(b.In(Prefix), b.Input(tensor.F32, 1, c.Latent, h, w))
	})
	if err != nil {
		return nil, err
	}
	return &Decoder{c, p}, nil
}

// Close frees the graph.
func (d *Decoder) Close() { d.prog.Close() }

// Decode turns a latent as networks see it into an image [3, h, w] with values
// around -1 to 1.
func (d *Decoder) Decode(ctx context.Context, latent []float32) ([]float32, error) {
	z := make([]float32, len(latent))
	for i, v := range latent {
		z[i] = v/d.Scale + d.Shift
	}
	return d.prog.Run(ctx, graph.Floats(z))
}

func (c Config) forward(b graph.Builder, z graph.Tensor) graph.Tensor {
	if b.Has("post_quant_conv.weight") {
		z = c.conv(0).Apply(b.In("post_quant_conv"), z)
	}
	b = b.In("decoder")
	x := c.conv(1).Apply(b.In("conv_in"), z)
	x = c.residual(b.In("mid.block_1"), x)
	x = c.attention(b.In("mid.attn_1"), x)
	x = c.residual(b.In("mid.block_2"), x)
	for level := c.Levels - 1; level >= 0; level-- {
		up := b.Inf("up.%d", level)
		for i := 0; up.Has(fmt.Sprintf("block.%d.norm1.weight", i)); i++ {
			x = c.residual(up.Inf("block.%d", i), x)
		}
		if level > 0 {
			x = c.conv(1).Apply(up.In("upsample.conv"), up.Upscale(x, 2))
		}
	}
	x = b.SiLU(nn.GroupNorm(b.In("norm_out"), x))
	return c.conv(1).Apply(b.In("conv_out"), x)
}

func (c Config) conv(pad int) nn.Conv2D { return nn.Conv2D{Pad: pad, InputScale: c.InputScale} }

func (c Config) residual(b graph.Builder, x graph.Tensor) graph.Tensor {
	h := b.SiLU(nn.GroupNorm(b.In("norm1"), x))
	h = c.conv(1).Apply(b.In("conv1"), h)
	h = b.SiLU(nn.GroupNorm(b.In("norm2"), h))
	h = c.conv(1).Apply(b.In("conv2"), h)
	if b.Has("nin_shortcut.weight") {
		x = c.conv(0).Apply(b.In("nin_shortcut"), x)
	}
	return b.Add(h, x)
}

// attention has one head over all pixels.
func (c Config) attention(b graph.Builder, x graph.Tensor) graph.Tensor {
	n, h, w := x.Dim(0), x.Dim(2), x.Dim(3)
	y := nn.GroupNorm(b.In("norm"), x)
	if nn.IsMatrix(b.In("proj_out")) {
		y = nn.ToTokens(b, y)
		y = nn.Attention(b, nn.Linear(b.In("q"), y), nn.Linear(b.In("k"), y), nn.Linear(b.In("v"), y), 1, graph.Tensor{})
		return b.Add(nn.ToImage(b, nn.Linear(b.In("proj_out"), y), n, h, w), x)
	}
	tokens := func(path string) graph.Tensor { return nn.ToTokens(b, c.conv(0).Apply(b.In(path), y)) }
	y = nn.ToImage(b, nn.Attention(b, tokens("q"), tokens("k"), tokens("v"), 1, graph.Tensor{}), n, h, w)
	return b.Add(c.conv(0).Apply(b.In("proj_out"), y), x)
}

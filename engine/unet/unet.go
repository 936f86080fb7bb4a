package unet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/nn"
	"github.com/sdtool/sdtool/tensor"
)

// Prefix is the module path of the network in a checkpoint.
const Prefix = "model.diffusion_model"

// Config is what a checkpoint's shapes say about the network.
type Config struct {
	In, Out  int64 // channels of the latent that goes in and of the one that comes out
	Channels int64 // at full resolution
	Context  int64 // width of the text encoding; 0 if there is no cross attention
	Vector   int64 // width of the size and pooled text vector; 0 if there is none
	Levels   int   // times the resolution is halved

	input, output []int // block numbers there are
}

// Detect reads the configuration off names and shapes. It fails when the
// tensors are no such network.
func Detect(shape func(name string) []int64, names []string) (Config, error) {
	var c Config
	first := shape(Prefix + ".input_blocks.0.0.weight")
	last := shape(Prefix + ".out.2.weight")
	if len(first) != 4 || len(last) != 4 {
		return c, fmt.Errorf("no U-Net: tensor %q is %s", Prefix+".input_blocks.0.0.weight", tensor.ShapeString(first))
	}
	c.In, c.Channels, c.Out = first[1], first[0], last[0]
	if v := shape(Prefix + ".label_emb.0.0.weight"); len(v) == 2 {
		c.Vector = v[1]
	}
	for _, name := range names {
		path, ok := strings.CutPrefix(name, Prefix+".")
		if !ok {
			continue
		}
		c.input = addBlock(c.input, path, "input_blocks.")
		c.output = addBlock(c.output, path, "output_blocks.")
		if strings.HasSuffix(path, ".op.weight") {
			c.Levels++
		}
		if s := shape(name); c.Context == 0 && strings.HasSuffix(path, "attn2.to_k.weight") && len(s) == 2 {
			c.Context = s[1]
		}
	}
	slices.Sort(c.input)
	slices.Sort(c.output)
	return c, nil
}

func addBlock(blocks []int, path, prefix string) []int {
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok {
		return blocks
	}
	number, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if err != nil || slices.Contains(blocks, n) {
		return blocks
	}
	return append(blocks, n)
}

// heads: SD 1.x has 8 heads whatever the width, its successors heads of 64.
func (c Config) heads(width int64) int64 {
	const (
		sd1Context = 768
		sd1Heads   = 8
		headWidth  = 64
	)
	if c.Context == sd1Context {
		return sd1Heads
	}
	return max(width/headWidth, 1)
}

// Net is the network compiled for one latent size and text length.
type Net struct {
	prog   *graph.Program
	vector bool
}

// Compile builds the network for latents of height h and width w (in latent
// pixels) and tokens of text.
func Compile(d *graph.Device, weights *graph.Weights, c Config, o graph.Options, h, w, tokens int64) (*Net, error) {
	p, err := d.Compile("U-Net", weights, o, func(b graph.Builder) graph.Tensor {
		x, time := b.Input(tensor.F32, 1, c.In, h, w), b.Input(tensor.F32, 1)
		text := b.Input(tensor.F32, 1, tokens, c.Context)
		var vector graph.Tensor
		if c.Vector > 0 {
			vector = b.Input(tensor.F32, 1, c.Vector)
		}
		return c.forward(b.In(Prefix), x, time, text, vector)
	})
	if err != nil {
		return nil, err
	}
	return &Net{p, c.Vector > 0}, nil
}

// Close frees the graph.
func (n *Net) Close() { n.prog.Close() }

// Run predicts from a latent [1, in, h, w] at a time, a text encoding [tokens,
// context] and, for networks that take one, a vector.
func (n *Net) Run(ctx context.Context, x []float32, time float32, text, vector []float32) ([]float32, error) {
	in := []graph.Value{graph.Floats(x), graph.Floats([]float32{time}), graph.Floats(text)}
	if n.vector {
		in = append(in, graph.Floats(vector))
	}
	return n.prog.Run(ctx, in...)
}

func (c Config) forward(b graph.Builder, x, time, text, vector graph.Tensor) graph.Tensor {
	emb := mlp(b, "time_embed.0", "time_embed.2", b.TimestepEmbedding(time, int(c.Channels)))
	if !vector.IsZero() {
		emb = b.Add(emb, mlp(b, "label_emb.0.0", "label_emb.0.2", vector))
	}
	net := &pass{config: c, emb: emb, text: text}
	for _, n := range c.input {
		x = net.block(b.Inf("input_blocks.%d", n), x)
		net.kept = append(net.kept, x)
	}
	x = net.block(b.In("middle_block"), x)
	for _, n := range c.output {
		x = net.outputBlock(b.Inf("output_blocks.%d", n), x)
	}
	x = b.SiLU(nn.GroupNorm(b.In("out.0"), x))
	return nn.Conv2D{Pad: 1}.Apply(b.In("out.2"), x)
}

func mlp(b graph.Builder, first, second string, x graph.Tensor) graph.Tensor {
	return nn.Linear(b.In(second), b.SiLU(nn.Linear(b.In(first), x)))
}

// pass is one walk through the network.
type pass struct {
	config    Config
	emb, text graph.Tensor
	kept      []graph.Tensor
}

// modules is the most a block can have: residual block, transformer, resampler.
const modules = 3

// block applies the modules that a block has.
func (p *pass) block(b graph.Builder, x graph.Tensor) graph.Tensor {
	for i := range modules {
		x = p.module(b.Inf("%d", i), x)
	}
	return x
}

// outputBlock is block with the newest kept result joined to the input of its
// residual block.
func (p *pass) outputBlock(b graph.Builder, x graph.Tensor) graph.Tensor {
	if isResidual(b.In("0")) {
		last := len(p.kept) - 1
		if last < 0 {
			return b.Failf("more residual blocks than the input side kept results for")
		}
		x = b.Concat(x, p.kept[last], 1)
		p.kept = p.kept[:last]
	}
	return p.block(b, x)
}

func isResidual(b graph.Builder) bool { return b.Has("in_layers.0.weight") }

// module applies one module, told by the tensors it has; none is the identity.
func (p *pass) module(b graph.Builder, x graph.Tensor) graph.Tensor {
	switch {
	case isResidual(b):
		return p.residual(b, x)
	case b.Has("transformer_blocks.0.norm1.weight"):
		return p.transformer(b, x)
	case b.Has("op.weight"):
		return nn.Conv2D{Stride: 2, Pad: 1}.Apply(b.In("op"), x)
	case b.Has("conv.weight"):
		return nn.Conv2D{Pad: 1}.Apply(b.In("conv"), b.Upscale(x, 2))
	case b.Has("weight"):
		return nn.Conv2D{Pad: 1}.Apply(b, x)
	}
	return x
}

func (p *pass) residual(b graph.Builder, x graph.Tensor) graph.Tensor {
	h := b.SiLU(nn.GroupNorm(b.In("in_layers.0"), x))
	h = nn.Conv2D{Pad: 1}.Apply(b.In("in_layers.2"), h)
	emb := nn.Linear(b.In("emb_layers.1"), b.SiLU(p.emb))
	h = b.Add(h, b.Reshape(emb, 1, emb.Dim(-1), 1, 1))
	h = b.SiLU(nn.GroupNorm(b.In("out_layers.0"), h))
	h = nn.Conv2D{Pad: 1}.Apply(b.In("out_layers.3"), h)
	if b.Has("skip_connection.weight") {
		x = nn.Conv2D{}.Apply(b.In("skip_connection"), x)
	}
	return b.Add(h, x)
}

// transformer attends over the pixels of x and over the text.
func (p *pass) transformer(b graph.Builder, x graph.Tensor) graph.Tensor {
	n, h, w := x.Dim(0), x.Dim(2), x.Dim(3)
	y := nn.GroupNorm(b.In("norm"), x)
	in, out := b.In("proj_in"), b.In("proj_out")
	if nn.IsMatrix(in) {
		y = nn.Linear(in, nn.ToTokens(b, y))
	} else {
		y = nn.ToTokens(b, nn.Conv2D{}.Apply(in, y))
	}
	for i := 0; b.Has(fmt.Sprintf("transformer_blocks.%d.norm1.weight", i)); i++ {
		y = p.transformerBlock(b.Inf("transformer_blocks.%d", i), y)
	}
	if nn.IsMatrix(out) {
		y = nn.ToImage(b, nn.Linear(out, y), n, h, w)
	} else {
		y = nn.Conv2D{}.Apply(out, nn.ToImage(b, y, n, h, w))
	}
	return b.Add(y, x)
}

const eps = 1e-5

func (p *pass) transformerBlock(b graph.Builder, x graph.Tensor) graph.Tensor {
	y := nn.LayerNorm(b.In("norm1"), x, eps)
	x = b.Add(p.attention(b.In("attn1"), y, y), x)
	x = b.Add(p.attention(b.In("attn2"), nn.LayerNorm(b.In("norm2"), x, eps), p.text), x)
	y = nn.GEGLU(b.In("ff.net.0"), nn.LayerNorm(b.In("norm3"), x, eps))
	return b.Add(nn.Linear(b.In("ff.net.2"), y), x)
}

func (p *pass) attention(b graph.Builder, x, context graph.Tensor) graph.Tensor {
	q := nn.Linear(b.In("to_q"), x)
	k, v := nn.Linear(b.In("to_k"), context), nn.Linear(b.In("to_v"), context)
	y := nn.Attention(b, q, k, v, p.config.heads(q.Dim(-1)), graph.Tensor{})
	return nn.Linear(b.In("to_out.0"), y)
}

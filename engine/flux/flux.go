package flux

import (
	"context"
	"fmt"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/nn"
	"github.com/sdtool/sdtool/tensor"
)

// Prefix is the module path of the network in a checkpoint.
const Prefix = "model.diffusion_model"

// Facts about the family that shapes do not tell.
const (
	headWidth = 128
	theta     = 10000
	eps       = 1e-6
	timeWidth = 256  // of the embedding of times and of guidance
	timeScale = 1000 // times and guidance are embedded in thousandths
	patch     = 2    // latent pixels along each side of a patch
)

// axes is how the width of a head is split between index, row and column.
var axes = []int64{16, 56, 56}

// Config is what a checkpoint's shapes say about the network.
type Config struct {
	Patch    int64 // values of a patch that goes in: 2·2·channels of the latent
	Out      int64 // of one that comes out; less than Patch if a picture is to start from
	Hidden   int64
	Heads    int64
	Context  int64 // width of the text encoding
	Vector   int64 // width of the pooled text
	Double   int   // blocks with two streams
	Single   int   // blocks with one
	Guidance bool  // it takes a guidance scale
	Layers   int   // of the network that makes Chroma's modulations; 0 for FLUX
}

// Chroma reports whether the network is Chroma, which has no pooled text.
func (c Config) Chroma() bool { return c.Layers > 0 }

// Detect reads the configuration off the shapes; ok is false if the tensors are no
// such network.
func Detect(shape func(name string) []int64) (c Config, ok bool) {
	img, txt := shape(Prefix+".img_in.weight"), shape(Prefix+".txt_in.weight")
	vector, out := shape(Prefix+".vector_in.in_layer.weight"), shape(Prefix+".final_layer.linear.weight")
	if len(img) != 2 || len(txt) != 2 || len(out) != 2 {
		return c, false
	}
	c = Config{Patch: img[1], Out: out[0], Hidden: img[0], Heads: img[0] / headWidth, Context: txt[1]}
	c.Layers = count(shape, approximator+".layers.%d.in_layer.weight")
	switch modulated := shape(Prefix+".double_blocks.0.img_mod.lin.weight") != nil; {
	case len(vector) == 2 && modulated && !c.Chroma():
		c.Vector = vector[1]
	case c.Chroma() && vector == nil && !modulated:
	default:
		return c, false
	}
	c.Guidance = shape(Prefix+".guidance_in.in_layer.weight") != nil
	c.Double = count(shape, "double_blocks.%d.img_attn.qkv.weight")
	c.Single = count(shape, "single_blocks.%d.linear1.weight")
	return c, c.Heads > 0
}

func count(shape func(string) []int64, format string) int {
	n := 0
	for shape(Prefix+"."+fmt.Sprintf(format, n)) != nil {
		n++
	}
	return n
}

// Channels returns those of the latent.
func (c Config) Channels() int64 { return c.Out / (patch * patch) }

// check refuses sizes that patches and heads cannot have.
func (c Config) check(h, w int64) error {
	switch {
	case h%patch != 0 || w%patch != 0:
		return fmt.Errorf("a latent of %d by %d: sides must be multiples of %d", w, h, patch)
	case c.Patch != c.Out || c.Out%(patch*patch) != 0:
		return fmt.Errorf("patches of %d values become such of %d: expected the same multiple of %d", c.Patch, c.Out, patch*patch)
	case c.Hidden%headWidth != 0:
		return fmt.Errorf("a width of %d: expected heads of %d", c.Hidden, headWidth)
	}
	return nil
}

// Net is the network compiled for one latent size and text length.
type Net struct {
	config Config
	prog   *graph.Program
	height int64 // of the latent, in its pixels
	width  int64
	cos    []float32
	sin    []float32
}

// Compile builds the network for latents of height h and width w, both even, and
// tokens of text.
func Compile(d *graph.Device, weights *graph.Weights, c Config, o graph.Options, h, w, tokens int64) (*Net, error) {
	if err := c.check(h, w); err != nil {
		return nil, err
	}
	n := &Net{config: c, height: h, width: w}
	n.cos, n.sin = nn.Angles(positions(tokens, h/patch, w/patch), axes, theta)
	p, err := d.Compile("FLUX transformer", weights, o, func(b graph.Builder) graph.Tensor {
		all := tokens + h/patch*w/patch
		in := inputs{
			image: b.Input(tensor.F32, 1, h/patch*w/patch, c.Patch), text: b.Input(tensor.F32, 1, tokens, c.Context),
			cos: b.Input(tensor.F32, all, headWidth/2), sin: b.Input(tensor.F32, all, headWidth/2),
		}
		if c.Chroma() {
			in.numbered, in.mask = b.Input(tensor.F32, 1, c.modulationRows(), chromaWidth), b.Input(tensor.F32, all, all)
			return c.forward(b.In(Prefix), in)
		}
		in.vector, in.time = b.Input(tensor.F32, 1, c.Vector), b.Input(tensor.F32, 1)
		if c.Guidance {
			in.guidance = b.Input(tensor.F32, 1)
		}
		return c.forward(b.In(Prefix), in)
	})
	if err != nil {
		return nil, err
	}
	n.prog = p
	return n, nil
}

// positions are those of the text's tokens, all zero, and of the patches.
func positions(tokens, rows, cols int64) [][]float64 {
	list := make([][]float64, tokens, tokens+rows*cols)
	for i := range list {
		list[i] = []float64{0, 0, 0}
	}
	for y := range rows {
		for x := range cols {
			list = append(list, []float64{0, float64(y), float64(x)})
		}
	}
	return list
}

// Close frees the graph.
func (n *Net) Close() { n.prog.Close() }

// Run predicts the velocity of a latent [channels, h, w] at a time from 0 to 1, from
// a text encoding [tokens, context], the pooled text and a guidance scale, which
// networks without one ignore. Chroma takes in place of the pooled text a mask [tokens]
// of the text: zero where it may be looked at, minus infinity where not.
func (n *Net) Run(ctx context.Context, x []float32, time float32, text, vector []float32, guidance float32) ([]float32, error) {
	if want := n.config.Channels() * n.height * n.width; int64(len(x)) != want {
		return nil, fmt.Errorf("a latent of %d values, expected %d", len(x), want)
	}
	in := []graph.Value{graph.Floats(n.patches(x)), graph.Floats(text), graph.Floats(n.cos), graph.Floats(n.sin)}
	switch {
	case n.config.Chroma():
		all := int64(len(n.cos) / (headWidth / 2))
		if want := all - int64(len(x))/n.config.Patch; int64(len(vector)) != want {
			return nil, fmt.Errorf("a mask of %d tokens, expected %d", len(vector), want)
		}
		in = append(in, graph.Floats(n.config.numbered(time)), graph.Floats(hide(vector, all)))
	default:
		in = append(in, graph.Floats(vector), graph.Floats([]float32{time * timeScale}))
	}
	if n.config.Guidance {
		in = append(in, graph.Floats([]float32{guidance * timeScale}))
	}
	y, err := n.prog.Run(ctx, in...)
	if err != nil {
		return nil, err
	}
	return n.unpatch(y), nil
}

// patches brings a latent [channels, h, w] into patches, each [channels, 2, 2].
func (n *Net) patches(x []float32) []float32 {
	out := make([]float32, len(x))
	n.walk(func(inPatches, inLatent int64) { out[inPatches] = x[inLatent] })
	return out
}

// unpatch is the inverse of patches.
func (n *Net) unpatch(y []float32) []float32 {
	out := make([]float32, len(y))
	n.walk(func(inPatches, inLatent int64) { out[inLatent] = y[inPatches] })
	return out
}

// walk calls f with both indices of every element.
func (n *Net) walk(f func(inPatches, inLatent int64)) {
	i := int64(0)
	for row := range n.height / patch {
		for col := range n.width / patch {
			for c := range n.config.Channels() {
				for dy := range int64(patch) {
					for dx := range int64(patch) {
						f(i, (c*n.height+row*patch+dy)*n.width+col*patch+dx)
						i++
					}
				}
			}
		}
	}
}

// inputs are what a graph is fed.
type inputs struct {
	image, text  graph.Tensor // [1, tokens, …]
	vector, time graph.Tensor
	guidance     graph.Tensor // none for networks that take none
	numbered     graph.Tensor // Chroma's in place of vector and time
	mask         graph.Tensor // of keys; none for FLUX
	cos, sin     graph.Tensor // angles of text and patches
}

func (c Config) forward(b graph.Builder, in inputs) graph.Tensor {
	p, image, text := c.embed(b, in)
	for i := range c.Double {
		image, text = p.double(b, i, image, text)
	}
	x := b.Concat(text, image, 1)
	for i := range c.Single {
		x = p.single(b, i, x)
	}
	x = b.Cont(b.Slice(x, 1, text.Dim(1), x.Dim(1)))
	b = b.In("final_layer")
	var m []graph.Tensor
	if c.Chroma() {
		m = p.rows(b, c.modulationRows()-2, 2)
	} else {
		m = nn.Chunks(b, nn.Linear(b.In("adaLN_modulation.1"), p.vec), 2)
	}
	return nn.Linear(b.In("linear"), nn.Modulation{Shift: m[0], Scale: m[1]}.Modulate(b, x, eps))
}

// embed makes what modulates the layers, and both streams.
func (c Config) embed(b graph.Builder, in inputs) (p *pass, image, text graph.Tensor) {
	image, text = nn.Linear(b.In("img_in"), in.image), nn.Linear(b.In("txt_in"), in.text)
	p = &pass{config: c, cos: in.cos, sin: in.sin, mask: in.mask}
	if c.Chroma() {
		p.table = c.approximate(b, in.numbered)
		return p, image, text
	}
	vec := nn.MLP(b, "time_in.in_layer", "time_in.out_layer", b.TimestepEmbedding(in.time, timeWidth))
	if !in.guidance.IsZero() {
		vec = b.Add(vec, nn.MLP(b, "guidance_in.in_layer", "guidance_in.out_layer", b.TimestepEmbedding(in.guidance, timeWidth)))
	}
	vec = b.Add(vec, nn.MLP(b, "vector_in.in_layer", "vector_in.out_layer", in.vector))
	p.vec = b.SiLU(vec)
	return p, image, text
}

// pass is one walk through the network.
type pass struct {
	config   Config
	vec      graph.Tensor // what modulates the layers, after SiLU
	table    graph.Tensor // Chroma's modulations, all of them, in place of vec
	cos, sin graph.Tensor
	mask     graph.Tensor
}

// modulations projects the vector to n modulations, or takes Chroma's from a row on.
func (p *pass) modulations(b graph.Builder, n, row int64) []nn.Modulation {
	var parts []graph.Tensor
	if p.config.Chroma() {
		parts = p.rows(b, row, 3*n)
	} else {
		parts = nn.Chunks(b, nn.Linear(b.In("lin"), p.vec), 3*n)
	}
	list := make([]nn.Modulation, n)
	for i := range list {
		list[i] = nn.Modulation{Shift: parts[3*i], Scale: parts[3*i+1], Gate: parts[3*i+2]}
	}
	return list
}

// rows are n rows of the table, each [1, 1, hidden].
func (p *pass) rows(b graph.Builder, first, n int64) []graph.Tensor {
	list := make([]graph.Tensor, n)
	for i := range list {
		list[i] = b.Cont(b.Slice(p.table, 1, first+int64(i), first+int64(i)+1))
	}
	return list
}

// heads are queries, keys and values [n, heads, tokens, 128].
type heads struct{ q, k, v graph.Tensor }

// split cuts a fused projection and normalises queries and keys.
func (p *pass) split(b graph.Builder, norm string, qkv graph.Tensor) heads {
	part := func(i int64) graph.Tensor {
		return nn.Heads(b, b.Cont(b.Slice(qkv, -1, i*p.config.Hidden, (i+1)*p.config.Hidden)), p.config.Heads)
	}
	return heads{
		nn.RMSNorm(b, norm+".query_norm.scale", part(0), eps),
		nn.RMSNorm(b, norm+".key_norm.scale", part(1), eps), part(2),
	}
}

func (p *pass) attend(b graph.Builder, h heads) graph.Tensor {
	return nn.HeadAttention(b, nn.Rotate(b, h.q, p.cos, p.sin), nn.Rotate(b, h.k, p.cos, p.sin), h.v, p.mask)
}

func (p *pass) double(b graph.Builder, index int, image, text graph.Tensor) (graph.Tensor, graph.Tensor) {
	b = b.Inf("double_blocks.%d", index)
	row := int64(3*p.config.Single + 6*index)
	im, tm := p.modulations(b.In("img_mod"), 2, row), p.modulations(b.In("txt_mod"), 2, row+int64(6*p.config.Double))
	i := p.split(b, "img_attn.norm", nn.Linear(b.In("img_attn.qkv"), im[0].Modulate(b, image, eps)))
	t := p.split(b, "txt_attn.norm", nn.Linear(b.In("txt_attn.qkv"), tm[0].Modulate(b, text, eps)))
	y := p.attend(b, heads{b.Concat(t.q, i.q, 2), b.Concat(t.k, i.k, 2), b.Concat(t.v, i.v, 2)})
	n := text.Dim(1)
	image = p.stream(b, "img", image, b.Cont(b.Slice(y, 1, n, y.Dim(1))), im)
	text = p.stream(b, "txt", text, b.Cont(b.Slice(y, 1, 0, n)), tm)
	return image, text
}

// stream is the rest of a double block for one of its streams.
func (p *pass) stream(b graph.Builder, name string, x, attention graph.Tensor, m []nn.Modulation) graph.Tensor {
	x = m[0].Residual(b, x, nn.Linear(b.In(name+"_attn.proj"), attention))
	y := nn.Linear(b.In(name+"_mlp.0"), m[1].Modulate(b, x, eps))
	return m[1].Residual(b, x, nn.Linear(b.In(name+"_mlp.2"), b.GELU(y)))
}

func (p *pass) single(b graph.Builder, index int, x graph.Tensor) graph.Tensor {
	b = b.Inf("single_blocks.%d", index)
	m := p.modulations(b.In("modulation"), 1, int64(3*index))[0]
	y := nn.Linear(b.In("linear1"), m.Modulate(b, x, eps))
	attention := p.attend(b, p.split(b, "norm", b.Slice(y, -1, 0, 3*p.config.Hidden)))
	mlp := b.GELU(b.Cont(b.Slice(y, -1, 3*p.config.Hidden, y.Dim(-1))))
	return m.Residual(b, x, nn.Linear(b.In("linear2"), b.Concat(attention, mlp, -1)))
}

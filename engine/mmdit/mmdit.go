package mmdit

import (
	"context"
	"fmt"
	"math"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/nn"
	"github.com/sdtool/sdtool/tensor"
)

// Prefix is the module path of the network in a checkpoint.
const Prefix = "model.diffusion_model"

// Facts about the family that shapes do not tell.
const (
	headWidth = 64
	eps       = 1e-6
	timeWidth = 256 // of the embedding of times
	patch     = 2   // latent pixels along each side of a patch
)

// Config is what a checkpoint's shapes say about the network.
type Config struct {
	Channels int64 // of the latent
	Out      int64 // of what comes out; less than Channels if a picture is to start from
	Hidden   int64
	Heads    int64
	Context  int64 // width of the text encoding
	Vector   int64 // width of the pooled text
	Depth    int   // joint blocks
	Side     int64 // patches along each side of the learned positions
}

// Detect reads the configuration off the shapes; ok is false if the tensors are no
// such network.
func Detect(shape func(name string) []int64) (c Config, ok bool) {
	in, text, vector := shape(Prefix+".x_embedder.proj.weight"), shape(Prefix+".context_embedder.weight"), shape(Prefix+".y_embedder.mlp.0.weight")
	if len(in) != 4 || len(text) != 2 || len(vector) != 2 {
		return c, false
	}
	c = Config{Channels: in[1], Hidden: in[0], Heads: in[0] / headWidth, Context: text[1], Vector: vector[1]}
	for shape(fmt.Sprintf("%s.joint_blocks.%d.x_block.attn.qkv.weight", Prefix, c.Depth)) != nil {
		c.Depth++
	}
	if last := shape(Prefix + ".final_layer.linear.weight"); len(last) == 2 {
		c.Out = last[0] / (patch * patch)
	}
	if n, err := tensor.Elements(shape(Prefix + ".pos_embed")); err == nil && c.Hidden > 0 {
		c.Side = int64(math.Sqrt(float64(n / c.Hidden)))
	}
	return c, c.Depth > 0 && c.Side > 0 && c.Heads > 0 && c.Out > 0
}

// Net is the network compiled for one latent size and text length.
type Net struct {
	config        Config
	prog          *graph.Program
	height, width int64 // of the latent, in its pixels
}

// Compile builds the network for latents of height h and width w, both even, and
// tokens of text. It fails for pictures larger than the learned positions.
func Compile(d *graph.Device, weights *graph.Weights, c Config, o graph.Options, h, w, tokens int64) (*Net, error) {
	switch {
	case c.Channels != c.Out:
		return nil, fmt.Errorf("%d channels become %d", c.Channels, c.Out)
	case h%patch != 0 || w%patch != 0:
		return nil, fmt.Errorf("a latent of %d by %d: sides must be multiples of %d", w, h, patch)
	case h/patch > c.Side || w/patch > c.Side:
		return nil, fmt.Errorf("a latent of %d by %d: the network knows positions of at most %d by %d", w, h, c.Side*patch, c.Side*patch)
	}
	p, err := d.Compile("SD3 transformer", weights, o, func(b graph.Builder) graph.Tensor {
		return c.forward(b.In(Prefix), inputs{
			image: b.Input(tensor.F32, 1, c.Channels, h, w), text: b.Input(tensor.F32, 1, tokens, c.Context),
			vector: b.Input(tensor.F32, 1, c.Vector), time: b.Input(tensor.F32, 1),
		})
	})
	if err != nil {
		return nil, err
	}
	return &Net{c, p, h, w}, nil
}

// Close frees the graph.
func (n *Net) Close() { n.prog.Close() }

// Run predicts the velocity of a latent [channels, h, w] at a time from 0 to 1000,
// from a text encoding [tokens, context] and the pooled text.
func (n *Net) Run(ctx context.Context, x []float32, time float32, text, vector []float32) ([]float32, error) {
	y, err := n.prog.Run(ctx, graph.Floats(x), graph.Floats(text), graph.Floats(vector), graph.Floats([]float32{time}))
	if err != nil {
		return nil, err
	}
	return n.unpatch(y), nil
}

// unpatch brings patches, each [2, 2, channels], into an image [channels, h, w].
func (n *Net) unpatch(y []float32) []float32 {
	out := make([]float32, len(y))
	i := 0
	for row := range n.height / patch {
		for col := range n.width / patch {
			for dy := range int64(patch) {
				for dx := range int64(patch) {
					for c := range n.config.Channels {
						out[(c*n.height+row*patch+dy)*n.width+col*patch+dx] = y[i]
						i++
					}
				}
			}
		}
	}
	return out
}

// inputs are what a graph is fed.
type inputs struct{ image, text, vector, time graph.Tensor }

func (c Config) forward(b graph.Builder, in inputs) graph.Tensor {
	p, x, text := c.embed(b, in)
	for i := range c.Depth {
		x, text = p.joint(b.Inf("joint_blocks.%d", i), x, text)
	}
	b = b.In("final_layer")
	m := nn.Chunks(b, nn.Linear(b.In("adaLN_modulation.1"), p.c), 2)
	return nn.Linear(b.In("linear"), nn.Modulation{Shift: m[0], Scale: m[1]}.Modulate(b, x, eps))
}

// embed makes what modulates the layers, and both streams.
func (c Config) embed(b graph.Builder, in inputs) (p *pass, x, text graph.Tensor) {
	vec := nn.MLP(b, "t_embedder.mlp.0", "t_embedder.mlp.2", b.TimestepEmbedding(in.time, timeWidth))
	vec = b.Add(vec, nn.MLP(b, "y_embedder.mlp.0", "y_embedder.mlp.2", in.vector))
	x = nn.Conv2D{Stride: patch}.Apply(b.In("x_embedder.proj"), in.image)
	rows, cols := x.Dim(2), x.Dim(3)
	x = b.Add(nn.ToTokens(b, x), c.positions(b, rows, cols))
	return &pass{config: c, c: b.SiLU(vec)}, x, nn.Linear(b.In("context_embedder"), in.text)
}

// positions are the learned ones of the middle rows and columns: [1, rows·cols, hidden].
func (c Config) positions(b graph.Builder, rows, cols int64) graph.Tensor {
	all := b.Reshape(b.Weight("pos_embed", graph.Vector, 1, c.Side*c.Side, c.Hidden), c.Side, c.Side, c.Hidden)
	top, left := (c.Side-rows)/2, (c.Side-cols)/2
	some := b.Slice(b.Slice(all, 0, top, top+rows), 1, left, left+cols)
	return b.Reshape(b.Cont(some), 1, rows*cols, c.Hidden)
}

// pass is one walk through the network.
type pass struct {
	config Config
	c      graph.Tensor // what modulates the layers, after SiLU
}

// modulations projects the vector to shift, scale and gate of each layer. A stream
// that ends here has no gate.
func (p *pass) modulations(b graph.Builder) []nn.Modulation {
	y := nn.Linear(b.In("adaLN_modulation.1"), p.c)
	if y.Dim(-1) == 2*p.config.Hidden {
		m := nn.Chunks(b, y, 2)
		return []nn.Modulation{{Shift: m[0], Scale: m[1]}}
	}
	var list []nn.Modulation
	parts := nn.Chunks(b, y, y.Dim(-1)/p.config.Hidden)
	for len(parts) >= 3 {
		list = append(list, nn.Modulation{Shift: parts[0], Scale: parts[1], Gate: parts[2]})
		parts = parts[3:]
	}
	return list
}

// Places in the modulations of a block.
const (
	attention = iota
	mlp
	imageAttention // the second, over the image alone
)

// heads are queries, keys and values [n, heads, tokens, 64].
type heads struct{ q, k, v graph.Tensor }

// project makes the heads of one stream.
func (p *pass) project(b graph.Builder, x graph.Tensor) heads {
	qkv := nn.Linear(b.In("qkv"), x)
	part := func(i int64) graph.Tensor {
		return nn.Heads(b, b.Cont(b.Slice(qkv, -1, i*p.config.Hidden, (i+1)*p.config.Hidden)), p.config.Heads)
	}
	h := heads{part(0), part(1), part(2)}
	if b.Has("ln_q.weight") {
		h.q, h.k = nn.RMSNorm(b, "ln_q.weight", h.q, eps), nn.RMSNorm(b, "ln_k.weight", h.k, eps)
	}
	return h
}

func attend(b graph.Builder, h heads) graph.Tensor {
	return nn.HeadAttention(b, h.q, h.k, h.v, graph.Tensor{})
}

// joint is a block: attention over both streams, then an MLP for each. After the last
// block there is no text.
func (p *pass) joint(b graph.Builder, x, text graph.Tensor) (graph.Tensor, graph.Tensor) {
	xb, tb := b.In("x_block"), b.In("context_block")
	xm, tm := p.modulations(xb), p.modulations(tb)
	if len(xm) < 2 || len(tm) < 1 {
		return b.Failf("a block without modulation of its layers"), text
	}
	i := p.project(xb.In("attn"), xm[attention].Modulate(b, x, eps))
	t := p.project(tb.In("attn"), tm[attention].Modulate(b, text, eps))
	y := attend(b, heads{b.Concat(t.q, i.q, 2), b.Concat(t.k, i.k, 2), b.Concat(t.v, i.v, 2)})
	n := text.Dim(1)
	var second graph.Tensor
	if len(xm) > imageAttention {
		second = attend(b, p.project(xb.In("attn2"), xm[imageAttention].Modulate(b, x, eps)))
	}
	x = xm[attention].Residual(b, x, nn.Linear(xb.In("attn.proj"), b.Cont(b.Slice(y, 1, n, y.Dim(1)))))
	if !second.IsZero() {
		x = xm[imageAttention].Residual(b, x, nn.Linear(xb.In("attn2.proj"), second))
	}
	x = p.feedForward(xb, x, xm[mlp])
	if len(tm) < 2 {
		return x, graph.Tensor{}
	}
	text = tm[attention].Residual(b, text, nn.Linear(tb.In("attn.proj"), b.Cont(b.Slice(y, 1, 0, n))))
	return x, p.feedForward(tb, text, tm[mlp])
}

func (p *pass) feedForward(b graph.Builder, x graph.Tensor, m nn.Modulation) graph.Tensor {
	y := b.GELU(nn.Linear(b.In("mlp.fc1"), m.Modulate(b, x, eps)))
	return m.Residual(b, x, nn.Linear(b.In("mlp.fc2"), y))
}

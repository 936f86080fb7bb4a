package t5

import (
	"context"
	"fmt"
	"math"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/nn"
	"github.com/sdtool/sdtool/tensor"
)

// Facts about the family that shapes do not tell.
const (
	headWidth   = 64
	maxDistance = 128 // farther tokens share the last bucket
	eps         = 1e-6
	// outScale is put on what the last projection of an MLP is fed and taken off its
	// result: what large models compute there goes beyond f16. stable-diffusion.cpp
	// does the same, so that importance matrices agree.
	outScale = 1.0 / 32
)

// Config is what a checkpoint's shapes say about an encoder.
type Config struct {
	Prefix  string // module path, such as "text_encoders.t5xxl.transformer"
	Layers  int
	Width   int64
	Heads   int64
	Vocab   int64
	Buckets int64 // of distances
	table   string
}

// Detect reads the configuration off the shapes of the tensors below a module path;
// ok is false if there is no encoder.
func Detect(shape func(name string) []int64, prefix string) (c Config, ok bool) {
	c = Config{Prefix: prefix}
	var table []int64
	for _, name := range []string{"shared.weight", "encoder.embed_tokens.weight"} {
		if table = shape(prefix + "." + name); len(table) == 2 {
			c.table = name
			break
		}
	}
	q := shape(prefix + ".encoder.block.0.layer.0.SelfAttention.q.weight")
	bias := shape(prefix + ".encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
	if len(table) != 2 || len(q) != 2 || len(bias) != 2 {
		return c, false
	}
	c.Vocab, c.Width, c.Heads, c.Buckets = table[0], table[1], q[0]/headWidth, bias[0]
	for shape(fmt.Sprintf("%s.encoder.block.%d.layer.0.layer_norm.weight", prefix, c.Layers)) != nil {
		c.Layers++
	}
	return c, c.Heads > 0
}

// Encoder is a compiled encoder for one number of tokens.
type Encoder struct {
	Config
	tokens  int64
	prog    *graph.Program
	buckets []int32
}

// Compile builds the graph for sequences of the given length.
func Compile(d *graph.Device, w *graph.Weights, c Config, o graph.Options, tokens int64) (*Encoder, error) {
	p, err := d.Compile("text encoder "+c.Prefix, w, o, func(b graph.Builder) graph.Tensor {
		ids, buckets, mask := b.Input(tensor.I32, tokens), b.Input(tensor.I32, tokens*tokens), b.Input(tensor.F32, 1, 1, 1, tokens)
		return c.forward(b.In(c.Prefix), ids, buckets, mask)
	})
	if err != nil {
		return nil, err
	}
	return &Encoder{c, tokens, p, c.distances(tokens)}, nil
}

// Close frees the graph.
func (e *Encoder) Close() { e.prog.Close() }

// Encode returns the states [tokens, width] of a sequence. Keys whose mask is zero
// are not attended to; a nil mask attends to all.
func (e *Encoder) Encode(ctx context.Context, ids []int32, mask []float32) ([]float32, error) {
	if int64(len(ids)) != e.tokens || mask != nil && len(mask) != len(ids) {
		return nil, fmt.Errorf("%d tokens and a mask of %d, the text encoder was built for %d", len(ids), len(mask), e.tokens)
	}
	for _, id := range ids {
		if id < 0 || int64(id) >= e.Vocab {
			return nil, fmt.Errorf("token %d: the text encoder knows %d", id, e.Vocab)
		}
	}
	hidden := make([]float32, len(ids))
	for i, m := range mask {
		if m == 0 {
			hidden[i] = -math.MaxFloat32
		}
	}
	return e.prog.Run(ctx, graph.Ints(ids), graph.Ints(e.buckets), graph.Floats(hidden))
}

// distances returns the bucket of every pair of query and key.
func (c Config) distances(tokens int64) []int32 {
	out := make([]int32, 0, tokens*tokens)
	for q := range tokens {
		for k := range tokens {
			out = append(out, c.bucket(k-q))
		}
	}
	return out
}

// bucket numbers a distance: half of the buckets for each direction, of which half
// are for one distance each and the others widen logarithmically.
func (c Config) bucket(distance int64) int32 {
	half := c.Buckets / 2
	exact := half / 2
	first := int64(0)
	if distance > 0 {
		first = half
	} else {
		distance = -distance
	}
	if distance < exact {
		return int32(first + distance)
	}
	wide := float32(math.Log(float64(distance)/float64(exact)) / math.Log(float64(maxDistance)/float64(exact)) * float64(half-exact))
	return int32(first + min(exact+int64(wide), half-1))
}

func (c Config) forward(b graph.Builder, ids, buckets, mask graph.Tensor) graph.Tensor {
	return nn.RMSNorm(b, "encoder.final_layer_norm.weight", c.stack(b, ids, buckets, mask), eps)
}

// stack is the table and the blocks: [1, tokens, width].
func (c Config) stack(b graph.Builder, ids, buckets, mask graph.Tensor) graph.Tensor {
	tokens := ids.Dim(0)
	x := b.Reshape(b.Rows(b.Weight(c.table, graph.Table, c.Vocab, c.Width), ids), 1, tokens, c.Width)
	b = b.In("encoder")
	var bias graph.Tensor
	for i := range c.Layers {
		block := b.Inf("block.%d", i)
		if attention := block.In("layer.0.SelfAttention"); attention.Has("relative_attention_bias.weight") {
			bias = attention.Add(c.bias(attention, buckets, tokens), mask)
		}
		x = c.attention(block.In("layer.0"), x, bias)
		x = feedForward(block.In("layer.1"), x)
	}
	return x
}

// bias is what distances add to scores: [1, heads, tokens, tokens].
func (c Config) bias(b graph.Builder, buckets graph.Tensor, tokens int64) graph.Tensor {
	values := b.Rows(b.Weight("relative_attention_bias.weight", graph.Table, c.Buckets, c.Heads), buckets)
	return b.Cont(b.Permute(b.Reshape(values, 1, tokens, tokens, c.Heads), 0, 3, 1, 2))
}

func (c Config) attention(b graph.Builder, x, bias graph.Tensor) graph.Tensor {
	y := nn.RMSNorm(b, "layer_norm.weight", x, eps)
	b = b.In("SelfAttention")
	head := func(path string) graph.Tensor { return nn.Heads(b, nn.Linear(b.In(path), y), c.Heads) }
	return b.Add(x, nn.Linear(b.In("o"), nn.BiasedAttention(b, head("q"), head("k"), head("v"), bias)))
}

func feedForward(b graph.Builder, x graph.Tensor) graph.Tensor {
	y := nn.RMSNorm(b, "layer_norm.weight", x, eps)
	b = b.In("DenseReluDense")
	y = b.Mul(b.GELU(nn.Linear(b.In("wi_0"), y)), nn.Linear(b.In("wi_1"), y))
	y = nn.Linear(b.In("wo"), b.Scale(y, outScale))
	return b.Add(x, b.Scale(y, 1/outScale))
}

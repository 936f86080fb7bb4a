package clip

import (
	"context"
	"fmt"
	"math"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/nn"
	"github.com/sdtool/sdtool/tensor"
)

// Config is what a checkpoint's shapes say about a text tower.
type Config struct {
	Prefix string // module path, such as "cond_stage_model.transformer.text_model"
	Layers int
	Width  int64
	Heads  int64
	Tokens int64 // positions there are embeddings for
	Vocab  int64
	// Pooled is the width of the projected pooled output, 0 if there is no projection.
	Pooled int64
	// QuickGELU: OpenAI's models use x·sigmoid(1.702x), OpenCLIP's the true GELU.
	QuickGELU bool
}

// Detect reads the configuration off the shapes of the tensors below a module
// path; ok is false if there is no tower. The head width of CLIP is 64
// throughout; the activation goes by width, as OpenAI's only text tower in use
// has 768.
func Detect(shape func(name string) []int64, prefix string) (c Config, ok bool) {
	table := shape(prefix + ".embeddings.token_embedding.weight")
	positions := shape(prefix + ".embeddings.position_embedding.weight")
	if len(table) != 2 || len(positions) != 2 {
		return Config{}, false
	}
	c = Config{Prefix: prefix, Width: table[1], Vocab: table[0], Heads: max(table[1]/64, 1), Tokens: positions[0]}
	c.QuickGELU = c.Width < 1024
	for shape(fmt.Sprintf("%s.encoder.layers.%d.layer_norm1.weight", prefix, c.Layers)) != nil {
		c.Layers++
	}
	if p := shape(prefix + ".text_projection"); len(p) == 2 {
		c.Pooled = p[0]
	}
	return c, c.Layers > 0
}

// Tower is a compiled text encoder.
type Tower struct {
	Config
	hidden *graph.Program
	pooled *graph.Program
}

// Skip says which layer's output is the text's encoding: 1 the last one's, 2
// the last but one's. FinalNorm puts the final layer norm on it.
type Skip struct {
	Layers    int
	FinalNorm bool
	// State makes the end token's state the pooled output, without a projection;
	// PooledOnly leaves the encoding out.
	State      bool
	PooledOnly bool
}

// Compile builds the tower's graphs. It fails if more layers are to be skipped
// than there are.
func Compile(d *graph.Device, w *graph.Weights, c Config, o graph.Options, s Skip) (*Tower, error) {
	if s.Layers < 1 || s.Layers > c.Layers {
		return nil, fmt.Errorf("clip skip %d: the text encoder has %d layers", s.Layers, c.Layers)
	}
	t := &Tower{Config: c}
	if s.State {
		t.Pooled = c.Width
	}
	var err error
	if !s.PooledOnly {
		t.hidden, err = d.Compile("text encoder "+c.Prefix, w, o, func(b graph.Builder) graph.Tensor {
			b = b.In(c.Prefix)
			x := c.stack(b, b.Input(tensor.I32, c.Tokens), b.Input(tensor.F32, c.Tokens, c.Tokens), c.Layers+1-s.Layers)
			if s.FinalNorm {
				x = nn.LayerNorm(b.In("final_layer_norm"), x, eps)
			}
			return x
		})
	}
	if err != nil || t.Pooled == 0 {
		return t, err
	}
	t.pooled, err = d.Compile("pooled text encoder "+c.Prefix, w, o, func(b graph.Builder) graph.Tensor {
		b = b.In(c.Prefix)
		ids, mask, end := b.Input(tensor.I32, c.Tokens), b.Input(tensor.F32, c.Tokens, c.Tokens), b.Input(tensor.I32, 1)
		x := nn.LayerNorm(b.In("final_layer_norm"), c.stack(b, ids, mask, c.Layers), eps)
		last := b.Rows(b.Reshape(x, c.Tokens, c.Width), end)
		if s.State {
			return last
		}
		return b.MatMul(last, b.Weight("text_projection", graph.Matrix, -1, c.Width))
	})
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close frees the graphs.
func (t *Tower) Close() {
	for _, p := range []*graph.Program{t.hidden, t.pooled} {
		if p != nil {
			p.Close()
		}
	}
}

const eps = 1e-5

// stack is the embeddings and the first layers of the encoder: [1, tokens, width].
func (c Config) stack(b graph.Builder, ids, mask graph.Tensor, layers int) graph.Tensor {
	e := b.In("embeddings")
	x := e.Rows(e.Weight("token_embedding.weight", graph.Table, c.Vocab, c.Width), ids)
	x = e.Add(x, e.Weight("position_embedding.weight", graph.Vector, c.Tokens, c.Width))
	x = e.Reshape(x, 1, c.Tokens, c.Width)
	for i := range layers {
		x = c.layer(b.Inf("encoder.layers.%d", i), x, mask)
	}
	return x
}

func (c Config) layer(b graph.Builder, x, mask graph.Tensor) graph.Tensor {
	x = b.Add(x, c.attention(b.In("self_attn"), nn.LayerNorm(b.In("layer_norm1"), x, eps), mask))
	y := nn.Linear(b.In("mlp.fc1"), nn.LayerNorm(b.In("layer_norm2"), x, eps))
	if c.QuickGELU {
		y = b.In("mlp").GELUQuick(y)
	} else {
		y = b.In("mlp").GELU(y)
	}
	return b.Add(x, nn.Linear(b.In("mlp.fc2"), y))
}

func (c Config) attention(b graph.Builder, x, mask graph.Tensor) graph.Tensor {
	var q, k, v graph.Tensor
	if b.Has("in_proj.weight") {
		qkv := nn.Linear(b.In("in_proj"), x)
		part := func(i int64) graph.Tensor { return b.Cont(b.Slice(qkv, -1, i*c.Width, (i+1)*c.Width)) }
		q, k, v = part(0), part(1), part(2)
	} else {
		q, k, v = nn.Linear(b.In("q_proj"), x), nn.Linear(b.In("k_proj"), x), nn.Linear(b.In("v_proj"), x)
	}
	return nn.Linear(b.In("out_proj"), nn.Attention(b, q, k, v, c.Heads, mask))
}

// Encode returns the hidden states [tokens, width] of one chunk of tokens.
func (t *Tower) Encode(ctx context.Context, ids []int32) ([]float32, error) {
	if err := t.check(ids); err != nil {
		return nil, err
	}
	return t.hidden.Run(ctx, graph.Ints(ids), graph.Floats(causal(t.Tokens)))
}

// Pool returns the projection of the state at position end, or that state (see Skip),
// [Pooled].
func (t *Tower) Pool(ctx context.Context, ids []int32, end int) ([]float32, error) {
	if err := t.check(ids); err != nil {
		return nil, err
	}
	if t.pooled == nil || end < 0 || int64(end) >= t.Tokens {
		return nil, fmt.Errorf("pooled output at token %d of %d: the text encoder has none", end, t.Tokens)
	}
	return t.pooled.Run(ctx, graph.Ints(ids), graph.Floats(causal(t.Tokens)), graph.Ints([]int32{int32(end)}))
}

// check keeps ggml from reading rows that are not there.
func (t *Tower) check(ids []int32) error {
	if int64(len(ids)) != t.Tokens {
		return fmt.Errorf("%d tokens, the text encoder takes %d", len(ids), t.Tokens)
	}
	for _, id := range ids {
		if id < 0 || int64(id) >= t.Vocab {
			return fmt.Errorf("token %d: the text encoder knows %d", id, t.Vocab)
		}
	}
	return nil
}

// causal lets a token see itself and those before it.
func causal(n int64) []float32 {
	mask := make([]float32, n*n)
	for q := range n {
		for k := q + 1; k < n; k++ {
			mask[q*n+k] = float32(math.Inf(-1))
		}
	}
	return mask
}

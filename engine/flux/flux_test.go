package flux

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/enginetest"
	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/nn"
	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// What testdata/make_flux.py ran.
const (
	rows, cols, tokens      = 3, 4, 7
	contextWidth, poolWidth = 96, 64
	scale                   = 3.5
)

func reference(t *testing.T, kind string) enginetest.Network {
	var all map[string]enginetest.Network
	enginetest.Read(t, "flux.json.gz", &all)
	require.Contains(t, all, kind)
	return all[kind]
}

type net struct {
	enginetest.Bench
	config Config
}

func open(t *testing.T, want enginetest.Network) net {
	list := want.Renamed(t, rename.Flux)
	c, ok := Detect(enginetest.Shape(list))
	require.True(t, ok)
	return net{enginetest.Open(t, list), c}
}

func (n net) compile(t *testing.T, o graph.Options) *Net {
	t.Helper()
	c, err := Compile(n.Device, n.Weights, n.config, o, 2*rows, 2*cols, tokens)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func inputValues() (latent, text, pooled []float32) {
	return enginetest.Values("latent", 16*4*rows*cols), enginetest.Values("text", tokens*contextWidth), enginetest.Values("pooled", poolWidth)
}

func TestAgainstDiffusers(t *testing.T) {
	for _, kind := range []string{"dev", "schnell"} {
		t.Run(kind, func(t *testing.T) {
			ctx := context.Background()
			want := reference(t, kind)
			n := open(t, want)
			require.Equal(t, Config{Patch: 64, Out: 64, Hidden: 256, Heads: 2, Context: contextWidth, Vector: poolWidth, Double: 2, Single: 2, Guidance: kind == "dev"}, n.config)
			c := n.compile(t, graph.Options{})
			require.NoError(t, n.Weights.Load(ctx, nil))
			latent, text, pooled := inputValues()

			done := n.Watch(t)
			got, err := c.Run(ctx, latent, 0.7, text, pooled, scale)
			require.NoError(t, err)
			columns := done()
			enginetest.Near(t, "velocity", want.Output, got, 1e-3)
			want.CompareColumns(t, columns, func(module string) string { return rename.Flux.Rename("transformer." + module + ".weight") })

			sampled := want.Euler(t, latent, func(x []float32, sigma float32) []float32 {
				v, err := c.Run(ctx, x, sigma, text, pooled, scale)
				require.NoError(t, err)
				return v
			})
			enginetest.Near(t, "four steps", want.Sampled, sampled, 1e-3)

			fused, err := n.compile(t, graph.Options{FlashAttention: true}).Run(ctx, latent, 0.7, text, pooled, scale)
			require.NoError(t, err)
			enginetest.Near(t, "with fused attention", want.Output, fused, 5e-3)
		})
	}
}

// Each block's two streams, image and text.
func TestBlocksAgainstDiffusers(t *testing.T) {
	ctx := context.Background()
	want := reference(t, "dev")
	n := open(t, want)
	c := n.compile(t, graph.Options{})
	require.NoError(t, n.Weights.Load(ctx, nil))
	latent, text, pooled := inputValues()
	after := func(double, single int) (image, txt []float32) {
		both := n.Run(t, "blocks", graph.Options{}, func(b graph.Builder) (graph.Tensor, []graph.Value) {
			in := inputs{
				image: b.Input(tensor.F32, 1, rows*cols, 64), text: b.Input(tensor.F32, 1, tokens, contextWidth), vector: b.Input(tensor.F32, 1, poolWidth),
				time: b.Input(tensor.F32, 1), guidance: b.Input(tensor.F32, 1), cos: b.Input(tensor.F32, tokens+rows*cols, 64), sin: b.Input(tensor.F32, tokens+rows*cols, 64),
			}
			values := []graph.Value{
				graph.Floats(c.patches(latent)), graph.Floats(text), graph.Floats(pooled), graph.Floats([]float32{700}), graph.Floats([]float32{1000 * scale}),
				graph.Floats(c.cos), graph.Floats(c.sin),
			}
			p, image, text := n.config.embed(b.In(Prefix), in)
			for i := range double {
				image, text = p.double(b.In(Prefix), i, image, text)
			}
			x := b.Concat(text, image, 1)
			for i := range single {
				x = p.single(b.In(Prefix), i, x)
			}
			return x, values
		})
		cut := tokens * int(n.config.Hidden)
		return both[cut:], both[:cut]
	}
	for i := 1; i <= 2; i++ {
		image, txt := after(i, 0)
		block := want.Blocks[fmt.Sprintf("transformer_blocks.%d", i-1)]
		enginetest.Near(t, fmt.Sprintf("double block %d, image", i-1), block[0], enginetest.Some(image, enginetest.Streams), 1e-3)
		enginetest.Near(t, fmt.Sprintf("double block %d, text", i-1), block[1], enginetest.Some(txt, enginetest.Streams), 1e-3)
		image, txt = after(2, i)
		block = want.Blocks[fmt.Sprintf("single_transformer_blocks.%d", i-1)]
		enginetest.Near(t, fmt.Sprintf("single block %d, image", i-1), block[0], enginetest.Some(image, enginetest.Streams), 1e-3)
		enginetest.Near(t, fmt.Sprintf("single block %d, text", i-1), block[1], enginetest.Some(txt, enginetest.Streams), 1e-3)
	}
}

func TestPatches(t *testing.T) {
	n := &Net{config: Config{Patch: 8, Out: 8}, height: 4, width: 6}
	x := enginetest.Values("x", 2*4*6)
	require.Equal(t, x, n.unpatch(n.patches(x)))
	require.Equal(t, []float32{x[0], x[1], x[6], x[7], x[24], x[25], x[30], x[31]}, n.patches(x)[:8])
}

func TestOddSizesAreRefused(t *testing.T) {
	_, err := Compile(nil, nil, Config{}, graph.Options{}, 3, 4, 1)
	require.ErrorContains(t, err, "multiples of 2")
	_, err = Compile(nil, nil, Config{Patch: 384, Out: 64, Hidden: 256}, graph.Options{}, 2, 4, 1)
	require.ErrorContains(t, err, "patches of 384")
	_, err = Compile(nil, nil, Config{Patch: 64, Out: 64, Hidden: 320}, graph.Options{}, 2, 4, 1)
	require.ErrorContains(t, err, "heads of 128")
	_, err = (&Net{config: Config{Patch: 8, Out: 8}, height: 4, width: 6}).Run(context.Background(), make([]float32, 3), 1, nil, nil, 0)
	require.ErrorContains(t, err, "3 values, expected 48")
}

func TestAngles(t *testing.T) {
	cos, sin := nn.Angles(positions(1, 1, 2), axes, theta)
	require.Len(t, cos, 3*headWidth/2)
	require.Equal(t, []float32{1, 0}, []float32{cos[0], sin[0]}, "text is not turned")
	require.InDelta(t, 0.5403, cos[2*64+36], 1e-4, "the last patch is one column on")
}

// A checkpoint in the original names goes through rename untouched and computes what
// one in diffusers' names does.
func TestBothLayoutsAreTheSame(t *testing.T) {
	ctx := context.Background()
	want := reference(t, "dev")
	latent, text, pooled := inputValues()
	run := func(list []tensor.Tensor) []float32 {
		c, ok := Detect(enginetest.Shape(list))
		require.True(t, ok)
		n := net{enginetest.Open(t, list), c}
		p := n.compile(t, graph.Options{})
		require.NoError(t, n.Weights.Load(ctx, nil))
		y, err := p.Run(ctx, latent, 0.7, text, pooled, scale)
		require.NoError(t, err)
		return y
	}
	diffusers := want.Renamed(t, rename.Flux)
	r, err := rename.Apply(rename.Flux, diffusers)
	require.NoError(t, err)
	require.Empty(t, r.Incomplete)
	original := make([]tensor.Tensor, len(r.Tensors))
	for i, x := range r.Tensors {
		original[i] = x.Tensor
		require.Equal(t, x.Tensor.Name, rename.Flux.Rename(x.Tensor.Name))
	}
	require.Len(t, original, len(diffusers))
	require.Equal(t, run(diffusers), run(original))
}

// stored is a tensor whose bytes are in memory.
type stored []byte

func (s stored) Size() int64 { return int64(len(s)) }

func (s stored) ReadAt(p []byte, off int64) (int, error) { return copy(p, s[off:]), nil }

// in returns the tensors with matrices of type d, or f16 where rows are no whole blocks.
func in(t *testing.T, list []tensor.Tensor, d tensor.DType) []tensor.Tensor {
	t.Helper()
	out := make([]tensor.Tensor, len(list))
	for i, x := range list {
		out[i] = x
		if len(x.Shape) != 2 {
			continue
		}
		raw := make([]byte, x.Source.Size())
		_, err := x.Source.ReadAt(raw, 0)
		require.NoError(t, err)
		rows, cols := x.Shape[0], x.Shape[1]
		values := make([]float32, rows*cols)
		require.NoError(t, quant.Lookup(tensor.F32).Dequantize(values, raw))
		info := tensor.Info{Name: x.Name, DType: d, Shape: x.Shape}
		if cols%d.Block() != 0 {
			info.DType = tensor.F16
		}
		size, err := info.Bytes()
		require.NoError(t, err)
		packed := make(stored, size)
		_, err = quant.Lookup(info.DType).Quantize(packed, values, rows, cols, nil)
		require.NoError(t, err)
		out[i] = tensor.Tensor{Info: info, Source: packed}
	}
	return out
}

// Weights run as they are stored; what they lose is what their type loses.
func TestTypesOfWeights(t *testing.T) {
	ctx := context.Background()
	want := reference(t, "dev")
	latent, text, pooled := inputValues()
	for _, c := range []struct {
		d         tensor.DType
		tolerance float64
	}{{tensor.F16, 2e-3}, {tensor.BF16, 1e-2}, {tensor.F8E4M3, 0.1}, {tensor.Q8_0, 2e-2}, {tensor.Q5_1, 0.1}, {tensor.Q4_0, 0.2}, {tensor.Q4_K, 0.2}} {
		t.Run(c.d.String(), func(t *testing.T) {
			list := in(t, want.Renamed(t, rename.Flux), c.d)
			config, ok := Detect(enginetest.Shape(list))
			require.True(t, ok)
			n := net{enginetest.Open(t, list), config}
			p := n.compile(t, graph.Options{})
			require.NoError(t, n.Weights.Load(ctx, nil))
			y, err := p.Run(ctx, latent, 0.7, text, pooled, scale)
			require.NoError(t, err)
			enginetest.Near(t, "velocity", want.Output, y, c.tolerance)
		})
	}
}

func TestChromaAgainstDiffusers(t *testing.T) {
	ctx := context.Background()
	want := reference(t, "chroma")
	list := want.Renamed(t, rename.Chroma)
	config, ok := Detect(enginetest.Shape(list))
	require.True(t, ok)
	require.Equal(t, Config{Patch: 64, Out: 64, Hidden: 128, Heads: 1, Context: contextWidth, Double: 2, Single: 2, Layers: 2}, config)
	n := net{enginetest.Open(t, list), config}
	c := n.compile(t, graph.Options{})
	require.NoError(t, n.Weights.Load(ctx, nil))
	latent, text, _ := inputValues()
	mask := make([]float32, tokens)

	done := n.Watch(t)
	got, err := c.Run(ctx, latent, 0.7, text, mask, 0)
	require.NoError(t, err)
	columns := done()
	enginetest.Near(t, "velocity", want.Output, got, 1e-3)
	want.CompareColumns(t, columns, func(module string) string { return rename.Chroma.Rename("transformer." + module + ".weight") })

	// Tokens that the mask hides might as well not be there.
	for i := 4; i < tokens; i++ {
		mask[i] = float32(math.Inf(-1))
	}
	got, err = c.Run(ctx, latent, 0.7, text, mask, 0)
	require.NoError(t, err)
	enginetest.Near(t, "velocity of four tokens", want.Sampled, got, 1e-3)

	_, err = c.Run(ctx, latent, 0.7, text, mask[1:], 0)
	require.ErrorContains(t, err, "expected 7")
	got, err = n.compile(t, graph.Options{FlashAttention: true}).Run(ctx, latent, 0.7, text, mask, 0)
	require.NoError(t, err)
	enginetest.Near(t, "velocity with fused attention", want.Sampled, got, 5e-3)
}

package mmdit

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/enginetest"
	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// What testdata/make_sd3.py ran.
const (
	height, width, tokens   = 6, 8, 7
	contextWidth, poolWidth = 96, 64
	guidance                = 4.5
)

var kinds = []string{"sd3", "large", "medium"}

func reference(t *testing.T, kind string) enginetest.Network {
	var all map[string]enginetest.Network
	enginetest.Read(t, "sd3.json.gz", &all)
	require.Contains(t, all, kind)
	return all[kind]
}

type net struct {
	enginetest.Bench
	config Config
}

func open(t *testing.T, want enginetest.Network) net {
	list := want.Renamed(t, rename.SD3)
	c, ok := Detect(enginetest.Shape(list))
	require.True(t, ok)
	return net{enginetest.Open(t, list), c}
}

func (n net) compile(t *testing.T, o graph.Options) *Net {
	t.Helper()
	c, err := Compile(n.Device, n.Weights, n.config, o, height, width, tokens)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// text is an encoding and a pooled one.
func text(prefix string) (encoded, pooled []float32) {
	return enginetest.Values(prefix+"text", tokens*contextWidth), enginetest.Values(prefix+"pooled", poolWidth)
}

func latent() []float32 { return enginetest.Values("latent", 16*height*width) }

func TestAgainstDiffusers(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			ctx := context.Background()
			want := reference(t, kind)
			n := open(t, want)
			require.Equal(t, Config{Channels: 16, Out: 16, Hidden: 128, Heads: 2, Context: contextWidth, Vector: poolWidth, Depth: 3, Side: 10}, n.config)
			c := n.compile(t, graph.Options{})
			require.NoError(t, n.Weights.Load(ctx, nil))
			encoded, pooled := text("")

			done := n.Watch(t)
			got, err := c.Run(ctx, latent(), 700, encoded, pooled)
			require.NoError(t, err)
			columns := done()
			enginetest.Near(t, "velocity", want.Output, got, 1e-3)
			want.CompareColumns(t, columns, func(module string) string { return rename.SD3.Rename("transformer." + module + ".weight") })

			other, empty := text("negative ")
			sampled := want.Euler(t, latent(), func(x []float32, sigma float32) []float32 {
				v, err := c.Run(ctx, x, sigma*1000, encoded, pooled)
				require.NoError(t, err)
				u, err := c.Run(ctx, x, sigma*1000, other, empty)
				require.NoError(t, err)
				for i := range v {
					v[i] = u[i] + guidance*(v[i]-u[i])
				}
				return v
			})
			enginetest.Near(t, "four steps with guidance", want.Sampled, sampled, 1e-3)

			fused, err := n.compile(t, graph.Options{FlashAttention: true}).Run(ctx, latent(), 700, encoded, pooled)
			require.NoError(t, err)
			enginetest.Near(t, "with fused attention", want.Output, fused, 5e-3)
		})
	}
}

// Each block's two streams, image and text; after the last there is only the image.
func TestBlocksAgainstDiffusers(t *testing.T) {
	for _, kind := range kinds {
		ctx := context.Background()
		want := reference(t, kind)
		n := open(t, want)
		n.compile(t, graph.Options{})
		require.NoError(t, n.Weights.Load(ctx, nil))
		encoded, pooled := text("")
		after := func(blocks, stream int) []float32 {
			return n.Run(t, "blocks", graph.Options{}, func(b graph.Builder) (graph.Tensor, []graph.Value) {
				in := inputs{
					image: b.Input(tensor.F32, 1, 16, height, width), text: b.Input(tensor.F32, 1, tokens, contextWidth),
					vector: b.Input(tensor.F32, 1, poolWidth), time: b.Input(tensor.F32, 1),
				}
				p, x, text := n.config.embed(b.In(Prefix), in)
				streams := []graph.Tensor{x, text}
				for i := range blocks {
					streams[0], streams[1] = p.joint(b.In(Prefix).Inf("joint_blocks.%d", i), streams[0], streams[1])
				}
				return streams[stream], []graph.Value{graph.Floats(latent()), graph.Floats(encoded), graph.Floats(pooled), graph.Floats([]float32{700})}
			})
		}
		for i := range n.config.Depth {
			for stream, values := range want.Blocks[fmt.Sprintf("transformer_blocks.%d", i)] {
				enginetest.Near(t, fmt.Sprintf("%s block %d, stream %d", kind, i, stream), values, enginetest.Some(after(i+1, stream), enginetest.Streams), 1e-3)
			}
		}
	}
}

func TestSizesThatDoNotFit(t *testing.T) {
	_, err := Compile(nil, nil, Config{Side: 10, Channels: 33, Out: 16}, graph.Options{}, 2, 2, 1)
	require.ErrorContains(t, err, "33 channels become 16")
	for want, size := range map[string][2]int64{"multiples of 2": {3, 4}, "at most 20 by 20": {22, 4}} {
		_, err := Compile(nil, nil, Config{Side: 10}, graph.Options{}, size[0], size[1], 1)
		require.ErrorContains(t, err, want)
	}
}

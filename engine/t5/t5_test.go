package t5

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

const (
	prefix = "text_encoders.t5xxl.transformer"
	tokens = 160
	text   = 151 // tokens that are no padding
)

// ids are what testdata/make_t5.py encoded.
func ids() []int32 {
	list := make([]int32, tokens)
	for i := range 150 {
		list[i] = int32(11*i%47 + 3)
	}
	list[150] = 1
	return list
}

func TestAgainstTransformers(t *testing.T) {
	var all map[string]enginetest.Network
	enginetest.Read(t, "t5.json.gz", &all)
	require.Len(t, all, 2)
	for kind, want := range all {
		t.Run(kind, func(t *testing.T) {
			ctx := context.Background()
			list := want.Renamed(t, rename.Flux)
			c, ok := Detect(enginetest.Shape(list), prefix)
			require.True(t, ok)
			require.Equal(t, Config{Prefix: prefix, Layers: 2, Width: 96, Heads: 2, Vocab: 50, Buckets: 32, table: "shared.weight"}, c)
			n := enginetest.Open(t, list)
			e, err := Compile(n.Device, n.Weights, c, graph.Options{}, tokens)
			require.NoError(t, err)
			defer e.Close()
			require.NoError(t, n.Weights.Load(ctx, nil))

			done := n.Watch(t)
			got, err := e.Encode(ctx, ids(), nil)
			require.NoError(t, err)
			columns := done()
			enginetest.Near(t, "states", want.Output, enginetest.Some(got, 2000), 1e-3)
			for name, sums := range columns { // see outScale
				if len(sums) == 160 {
					for i := range columns[name] {
						columns[name][i] /= outScale * outScale
					}
				}
			}
			want.CompareColumns(t, columns, func(module string) string { return prefix + "." + module + ".weight" })

			mask := make([]float32, tokens)
			for i := range text {
				mask[i] = 1
			}
			got, err = e.Encode(ctx, ids(), mask)
			require.NoError(t, err)
			enginetest.Near(t, "masked states", want.Sampled, enginetest.Some(got[:text*96], 2000), 1e-3)

			for layers := 1; layers <= 2; layers++ {
				c := c
				c.Layers = layers
				states := n.Run(t, "blocks", graph.Options{}, func(b graph.Builder) (graph.Tensor, []graph.Value) {
					in := []graph.Tensor{b.Input(tensor.I32, tokens), b.Input(tensor.I32, tokens*tokens), b.Input(tensor.F32, 1, 1, 1, tokens)}
					return c.stack(b.In(prefix), in[0], in[1], in[2]), []graph.Value{graph.Ints(ids()), graph.Ints(c.distances(tokens)), graph.Floats(make([]float32, tokens))}
				})
				enginetest.Near(t, fmt.Sprintf("block %d", layers-1), want.Blocks[fmt.Sprintf("block.%d", layers-1)][0], enginetest.Some(states, enginetest.Streams), 1e-3)
			}
		})
	}
}

// Distances of Hugging Face's T5Attention._relative_position_bucket.
func TestBuckets(t *testing.T) {
	c := Config{Buckets: 32}
	for distance, want := range map[int64]int32{0: 0, -1: 1, -7: 7, -8: 8, -11: 8, -12: 9, -127: 15, -1000: 15, 1: 17, 7: 23, 8: 24, 64: 30, 500: 31} {
		require.Equal(t, want, c.bucket(distance), "%d", distance)
	}
}

func TestWrongTokensAreRefused(t *testing.T) {
	e := &Encoder{Config: Config{Vocab: 10}, tokens: 2}
	for want, list := range map[string][]int32{"3 tokens": {1, 2, 3}, "token 10": {1, 10}, "token -1": {-1, 1}} {
		_, err := e.Encode(context.Background(), list, nil)
		require.ErrorContains(t, err, want)
	}
}

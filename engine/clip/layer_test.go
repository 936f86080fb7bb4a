package clip

import (
	"testing"

	"github.com/sdtool/sdtool/engine/enginetest"
	"github.com/sdtool/sdtool/engine/graph"
)

func TestLayerAgainstTorch(t *testing.T) {
	for name, quick := range map[string]bool{"clip layer, quick gelu": true, "clip layer, gelu": false} {
		c := Config{Width: 128, Heads: 2, Tokens: 9, QuickGELU: quick}
		t.Run(name, func(t *testing.T) {
			enginetest.Block(t, name, []enginetest.Input{{Name: "hidden"}, {Name: "mask", Values: causal(9), Shape: []int64{9, 9}}}, 1e-3, func(b graph.Builder, in []graph.Tensor) graph.Tensor {
				return c.layer(b.In("clip"), in[0], in[1])
			})
		})
	}
}

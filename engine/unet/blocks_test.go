package unet

import (
	"testing"

	"github.com/sdtool/sdtool/engine/enginetest"
	"github.com/sdtool/sdtool/engine/graph"
)

func TestResidualBlockAgainstTorch(t *testing.T) {
	enginetest.Block(t, "unet residual", []enginetest.Input{{Name: "image"}, {Name: "embedding"}}, 1e-3, func(b graph.Builder, in []graph.Tensor) graph.Tensor {
		return (&pass{emb: in[1]}).residual(b.In(Prefix+".b"), in[0])
	})
}

func TestTransformerAgainstTorch(t *testing.T) {
	enginetest.Block(t, "unet transformer", []enginetest.Input{{Name: "image"}, {Name: "text"}}, 1e-3, func(b graph.Builder, in []graph.Tensor) graph.Tensor {
		return (&pass{config: Config{Context: 48}, text: in[1]}).transformer(b.In(Prefix+".t"), in[0])
	})
}

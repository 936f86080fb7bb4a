package vae

import (
	"testing"

	"github.com/sdtool/sdtool/engine/enginetest"
	"github.com/sdtool/sdtool/engine/graph"
)

func TestResidualBlockAgainstTorch(t *testing.T) {
	for _, c := range []Config{{}, {InputScale: 1.0 / 32}} {
		enginetest.Block(t, "vae residual", []enginetest.Input{{Name: "image"}}, 1e-3, func(b graph.Builder, in []graph.Tensor) graph.Tensor {
			return c.residual(b.In(Prefix+".r"), in[0])
		})
	}
}

func TestAttentionAgainstTorch(t *testing.T) {
	enginetest.Block(t, "vae attention", []enginetest.Input{{Name: "image"}}, 1e-3, func(b graph.Builder, in []graph.Tensor) graph.Tensor {
		return Config{}.attention(b.In(Prefix+".a"), in[0])
	})
}

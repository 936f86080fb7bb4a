package quant_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/golden"
	"github.com/sdtool/sdtool/testdata/synth"
)

// Every tensor of all the neighbour's conversions, from the numbers it read.
func TestGoldenFlux(t *testing.T) {
	conversions, err := golden.Flux()
	require.NoError(t, err)
	require.Len(t, conversions, 54)
	const prefix = "model.diffusion_model."
	model := make(map[string]tensor.Info)
	for _, info := range synth.Flux(1, 512) {
		model[prefix+info.Name] = info
	}
	for _, c := range conversions {
		if testing.Short() && strings.HasPrefix(c.Type, "iq") {
			continue
		}
		name := c.Type + " none"
		if c.Imatrix {
			name = c.Type + " imatrix"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, g := range c.Tensors {
				info, ok := model[g.Name]
				require.True(t, ok, g.Name)
				shape := slices.Clone(info.Shape)
				slices.Reverse(shape)
				require.Equal(t, shape, g.NE)
				checkGolden(t, c, g, info)
			}
		})
	}
}

func checkGolden(t *testing.T, c golden.Conversion, g golden.Tensor, info tensor.Info) {
	t.Helper()
	n, err := info.Elements()
	require.NoError(t, err)
	src := make([]float32, n)
	synth.Fill(info, 0, src)
	bf16 := make([]byte, 2*n) // the model file holds BF16
	_, err = quant.Lookup(tensor.BF16).Quantize(bf16, src, 1, n, nil)
	require.NoError(t, err)
	require.NoError(t, quant.Lookup(tensor.BF16).Dequantize(src, bf16))
	d, ok := tensor.FromGGML(g.GGML)
	require.True(t, ok)
	cols := info.Cols()
	weights := modes["ones"](nil, cols)
	if c.Imatrix && strings.HasSuffix(info.Name, ".weight") && len(info.Shape) == 2 {
		weights = synth.Importance(g.Name, cols)
	}
	out := make([]byte, n/d.Block()*d.BlockBytes())
	_, err = quant.Lookup(d).QuantizeExact(out, src, n/cols, cols, weights)
	require.NoError(t, err, g.Name)
	same, err := g.Matches(bytes.NewReader(out))
	require.NoError(t, err)
	require.True(t, same, "%s as %s differs from the golden bytes", g.Name, d)
}

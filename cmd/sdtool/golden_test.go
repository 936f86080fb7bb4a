package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/golden"
	"github.com/sdtool/sdtool/testdata/synth"
)

// Every conversion of the golden data, by the whole command: names, shapes,
// types and bytes of every tensor are those that stable-diffusion.cpp wrote.
func TestGoldenConvert(t *testing.T) {
	dir := t.TempDir()
	model, matrix := filepath.Join(dir, "flux.safetensors"), filepath.Join(dir, "flux.dat")
	encode := func(dst []byte, src []float32) error {
		_, err := quant.Lookup(tensor.BF16).Quantize(dst, src, 1, int64(len(src)), nil)
		return err
	}
	require.NoError(t, synth.Write(model, synth.Flux(1, 512), tensor.BF16, encode))
	require.NoError(t, synth.WriteImatrix(matrix, "model.diffusion_model.", synth.Flux(1, 512)))
	conversions, err := golden.Flux()
	require.NoError(t, err)
	require.Len(t, conversions, 54)
	for _, c := range conversions {
		if testing.Short() && (!c.Imatrix || !slices.Contains([]string{"f16", "q8_0", "q4_K", "iq2_xxs"}, c.Type)) {
			continue // the packages' own tests hold all conversions to the same figures
		}
		name := c.Type + "/none"
		args := []string{"convert", "--diffusion-model", model, "--type", c.Type, "--compat", "sd-cli", "--quiet"}
		if c.Imatrix {
			name = c.Type + "/imatrix"
			args = append(args, "--imatrix", matrix)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out.gguf")
			ok(t, append(args, "-o", out)...)
			got := contents(t, out)
			require.Len(t, got, len(c.Tensors))
			for _, want := range c.Tensors {
				x, there := got[want.Name]
				require.True(t, there, want.Name)
				d, known := tensor.FromGGML(want.GGML)
				require.True(t, known)
				require.Equal(t, d, x.DType, want.Name)
				ne := slices.Clone(x.Shape)
				slices.Reverse(ne)
				require.Equal(t, want.NE, ne, want.Name)
				same, err := want.Matches(bytes.NewReader(x.data))
				require.NoError(t, err)
				require.True(t, same, "%s: bytes differ from the golden ones", want.Name)
			}
		})
	}
}

package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/enginetest"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// reshaped returns the tensors with other shapes for some names.
func reshaped(all []tensor.Tensor, shapes map[string][]int64) []tensor.Tensor {
	out := make([]tensor.Tensor, len(all))
	for i, x := range all {
		if shape, ok := shapes[x.Name]; ok {
			x = enginetest.Tensors(map[string][]int64{x.Name: shape}, tensor.F32, enginetest.Matrix)[0]
		}
		out[i] = x
	}
	return out
}

// Networks with the shapes of FLUX that are not what this engine runs are told from
// those it runs when they are loaded, not when they are run.
func TestFluxRefusesWhatItCannotRun(t *testing.T) {
	lib := nativetest.Library(t)
	all := readPipeline(t, "flux").model(t, rename.Flux)
	pieces := tokenizer(t)
	load := func(tensors []tensor.Tensor) error {
		m, err := Load(context.Background(), lib, tensors, Options{Threads: 1, T5Tokenizer: pieces})
		if err == nil {
			defer m.Close()
			_, err = m.Generate(context.Background(), pipelineParams(), Hooks{})
		}
		return err
	}
	const net = "model.diffusion_model."
	for name, channels := range map[string]int64{"Fill": 384, "Canny and Depth": 128} {
		t.Run(name, func(t *testing.T) {
			err := load(reshaped(all, map[string][]int64{net + "img_in.weight": {128, channels}}))
			require.ErrorIs(t, err, ErrUnknownFamily)
			require.ErrorContains(t, err, "a picture to start from")
		})
	}
	t.Run("heads of another width", func(t *testing.T) {
		shapes := make(map[string][]int64)
		for _, x := range all {
			if len(x.Shape) == 1 && x.Shape[0] == 128 && x.Name[len(x.Name)-len("norm.scale"):] == "norm.scale" {
				shapes[x.Name] = []int64{64}
			}
		}
		require.NotEmpty(t, shapes)
		require.ErrorContains(t, load(reshaped(all, shapes)), "128")
	})
	t.Run("decoder of another latent", func(t *testing.T) {
		err := load(reshaped(all, map[string][]int64{"first_stage_model.decoder.conv_in.weight": {64, 4, 3, 3}}))
		require.ErrorIs(t, err, ErrNoDecoder)
		require.ErrorContains(t, err, "16")
	})
}

// Either encoder may be absent; what it would have said is zeros.
func TestFluxWithoutAnEncoder(t *testing.T) {
	lib := nativetest.Library(t)
	all := readPipeline(t, "flux").model(t, rename.Flux)
	encode := func(tensors []tensor.Tensor, o Options) *condition {
		m, err := Load(context.Background(), lib, tensors, o)
		require.NoError(t, err)
		defer m.Close()
		c, err := m.net.encode(context.Background(), textRequest{text: "a red fox"})
		require.NoError(t, err)
		require.Len(t, c.text, fluxTokens*96)
		require.Len(t, c.vector, 64)
		return c
	}
	whole := encode(all, Options{Threads: 1, T5Tokenizer: tokenizer(t)})
	noT5 := encode(without(all, "text_encoders.t5xxl."), Options{Threads: 1})
	require.Equal(t, make([]float32, fluxTokens*96), noT5.text)
	require.Equal(t, whole.vector, noT5.vector)
	noCLIP := encode(without(all, "text_encoders.clip_l."), Options{Threads: 1, T5Tokenizer: tokenizer(t)})
	require.Equal(t, make([]float32, 64), noCLIP.vector)
	require.Equal(t, whole.text, noCLIP.text)

	_, err := Load(context.Background(), lib, without(all, "text_encoders."), Options{Threads: 1})
	require.ErrorIs(t, err, ErrNoTextEncoder)
}

package engine

import (
	"context"
	"math"
	"slices"
	"strings"
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

// A prompt longer than T5 is shown at a time goes on in further chunks.
func TestFluxLongPrompt(t *testing.T) {
	lib := nativetest.Library(t)
	m, err := Load(context.Background(), lib, readPipeline(t, "flux").model(t, rename.Flux), Options{Threads: 1, T5Tokenizer: tokenizer(t)})
	require.NoError(t, err)
	defer m.Close()
	c, err := m.net.encode(context.Background(), textRequest{text: strings.Repeat("a red fox in the snow, ", 60), guidance: 3.5})
	require.NoError(t, err)
	require.Greater(t, c.tokens, int64(fluxTokens))
	require.Zero(t, c.tokens%fluxTokens)
	require.Len(t, c.text, int(c.tokens)*96)
	_, err = m.net.predict(context.Background(), make([]float32, 16*4*6), latentSize{16, 4, 6}, 0.5, c)
	require.NoError(t, err)
}

// Chroma needs T5 alone, of whose padding it sees one token, and a negative prompt.
func TestChroma(t *testing.T) {
	lib := nativetest.Library(t)
	var nets map[string]enginetest.Network
	enginetest.Read(t, "flux.json.gz", &nets)
	rest := without(readPipeline(t, "flux").model(t, rename.Flux), "model.diffusion_model.")
	all := append(nets["chroma"].Renamed(t, rename.Chroma), rest...)
	ctx := context.Background()
	m, err := Load(ctx, lib, without(all, "text_encoders.clip_l."), Options{Threads: 1, T5Tokenizer: tokenizer(t)})
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, "Chroma", m.Traits().Name)
	require.Contains(t, m.Prediction().String(), "flux")
	c, err := m.net.encode(ctx, textRequest{text: "a red fox"})
	require.NoError(t, err)
	require.Len(t, c.vector, chromaTokens)
	shown := slices.IndexFunc(c.vector, func(v float32) bool { return v != 0 })
	words := len(tokenizer(t).Encode("a red fox"))
	require.Equal(t, words+1+chromaPadding, shown, "the words, the end and one of padding")
	for _, v := range c.vector[shown:] {
		require.True(t, math.IsInf(float64(v), -1))
	}
	picture := func(negative string) []byte {
		p := pipelineParams()
		p.Negative = negative
		images, err := m.Generate(ctx, p, Hooks{})
		require.NoError(t, err)
		return images[0].Pix
	}
	require.Equal(t, picture("blurry"), picture("blurry"))
	require.NotEqual(t, picture("blurry"), picture("a house"))

	_, err = Load(ctx, lib, without(all, "text_encoders.t5xxl."), Options{Threads: 1})
	require.ErrorIs(t, err, ErrNoTextEncoder)
}

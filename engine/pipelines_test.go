package engine

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/enginetest"
	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/rng"
	"github.com/sdtool/sdtool/engine/text"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// pipeline is what testdata/make_pipelines.py keeps of one.
type pipeline struct {
	Tensors map[string][]int64
	Text    []float32
	Pooled  []float32
	Latent  []float32
	Image   []float32
}

func readPipeline(t *testing.T, family string) pipeline {
	var all map[string]pipeline
	enginetest.Read(t, "pipelines.json.gz", &all)
	require.Contains(t, all, family)
	return all[family]
}

// model returns the renamed tensors: kernels f16, everything else f32.
func (p pipeline) model(t *testing.T, family rename.Family) []tensor.Tensor {
	t.Helper()
	return enginetest.Renamed(t, family, enginetest.Tensors(p.Tensors, tensor.F16, enginetest.Kernel))
}

// tokenizer is the small vocabulary the pipelines were run with.
func tokenizer(t *testing.T) *text.Unigram {
	t.Helper()
	f, err := os.Open(filepath.Join("text", "testdata", "unigram.model.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "spiece.model")
	require.NoError(t, os.WriteFile(path, raw, 0o666))
	u, err := text.OpenUnigram(path)
	require.NoError(t, err)
	return u
}

// pipelineParams are those of the reference.
func pipelineParams() Params {
	p := DefaultParams()
	p.Prompt, p.Negative, p.Width, p.Height = "a red fox in the snow, oil painting", "blurry", 48, 32
	p.Sigmas, p.Seed, p.RNG, p.Guidance = []float32{1, 0.8, 0.55, 0.25, 0}, 5, rng.CPU, ModelGuidance
	return p
}

func TestPipelinesAgainstTorch(t *testing.T) {
	lib := nativetest.Library(t)
	for _, c := range []struct {
		name     string
		family   rename.Family
		title    string
		guidance float32
	}{{"flux", rename.Flux, "FLUX.1 dev", 1}, {"sd3", rename.SD3, "SD 3.5 medium", 3}} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			want := readPipeline(t, c.name)
			m, err := Load(ctx, lib, want.model(t, c.family), Options{Threads: 1, T5Tokenizer: tokenizer(t)})
			require.NoError(t, err)
			defer m.Close()
			require.Equal(t, c.title, m.Traits().Name)
			require.Equal(t, 16, m.Traits().Multiple)
			p := pipelineParams()
			if c.guidance != m.Traits().Guidance {
				p.Guidance = c.guidance
			}
			g := &generation{model: m, params: p}
			require.NoError(t, g.plan(ctx))
			require.Equal(t, c.guidance != 1, g.uncond != nil, "a distilled model needs no negative prompt")
			enginetest.Near(t, "text", want.Text, enginetest.Some(g.cond.text, enginetest.Streams), 2e-3)
			enginetest.Near(t, "pooled text", want.Pooled, enginetest.Some(g.cond.vector, enginetest.Streams), 1e-3)
			x, err := g.sample(ctx, 0)
			require.NoError(t, err)
			enginetest.Near(t, "latent", want.Latent, enginetest.Some(x, enginetest.Streams), 1e-3)
			image, err := m.net.decode(ctx, x, g.size)
			require.NoError(t, err)
			enginetest.Near(t, "image", want.Image, enginetest.Some(image, 2000), 5e-3)

			images, err := m.Generate(ctx, p, Hooks{})
			require.NoError(t, err)
			require.Equal(t, 48, images[0].Bounds().Dx())
		})
	}
}

func TestTransformersSayWhatIsMissing(t *testing.T) {
	lib := nativetest.Library(t)
	ctx := context.Background()
	words := tokenizer(t)
	load := func(tensors []tensor.Tensor, o Options) error {
		m, err := Load(ctx, lib, tensors, o)
		if err == nil {
			m.Close()
		}
		return err
	}
	for family, kind := range map[string]rename.Family{"flux": rename.Flux, "sd3": rename.SD3} {
		all := readPipeline(t, family).model(t, kind)
		require.ErrorIs(t, load(all, Options{}), text.ErrNoTokenizer, family)
		require.ErrorIs(t, load(without(all, "text_encoders."), Options{}), ErrNoTextEncoder, family)
		require.NoError(t, load(without(all, "text_encoders.t5xxl."), Options{}), "%s: without T5 no tokenizer is needed", family)
		require.NoError(t, load(without(all, "text_encoders.clip_l."), Options{T5Tokenizer: words}), family)
		require.ErrorIs(t, load(without(all, "first_stage_model."), Options{T5Tokenizer: words}), ErrNoDecoder, family)
		require.NoError(t, load(without(all, "first_stage_model."), Options{T5Tokenizer: words, NoPictures: true}), family)
		var missing *graph.MissingError
		require.ErrorAs(t, load(without(all, "model.diffusion_model.final_layer.adaLN_modulation.1.weight"), Options{T5Tokenizer: words}), &missing, family)
		err := load(without(all, "text_encoders.t5xxl.transformer.encoder.final_layer_norm"), Options{T5Tokenizer: words})
		require.ErrorAs(t, err, &missing)
		require.Equal(t, "text_encoders.t5xxl.transformer.encoder.final_layer_norm.weight", missing.Tensor)
	}
	sd3 := readPipeline(t, "sd3")
	sd3.Tensors["transformer.pos_embed.proj.weight"] = []int64{128, 33, 2, 2}
	err := load(sd3.model(t, rename.SD3), Options{T5Tokenizer: words})
	require.ErrorIs(t, err, ErrUnknownFamily)
	require.ErrorContains(t, err, "a picture to start from")
	// A network that takes more channels than it gives wants a picture to start from.
	flux := readPipeline(t, "flux")
	flux.Tensors["transformer.x_embedder.weight"] = []int64{128, 384}
	err = load(flux.model(t, rename.Flux), Options{T5Tokenizer: words})
	require.ErrorIs(t, err, ErrUnknownFamily)
	require.ErrorContains(t, err, "a picture to start from")
}

// A value that is not a number stops the run with the layer that made it.
func TestTransformersNameWhatIsNoNumber(t *testing.T) {
	lib := nativetest.Library(t)
	for family, kind := range map[string]rename.Family{"flux": rename.Flux, "sd3": rename.SD3} {
		all := readPipeline(t, family).model(t, kind)
		name := map[string]string{"flux": "model.diffusion_model.single_blocks.0.linear2.bias", "sd3": "model.diffusion_model.joint_blocks.1.x_block.mlp.fc2.bias"}[family]
		for i := range all {
			if all[i].Name == name {
				all[i].Source = broken{all[i].Source}
			}
		}
		m, err := Load(context.Background(), lib, all, Options{Threads: 1, T5Tokenizer: tokenizer(t)})
		require.NoError(t, err)
		_, err = m.Generate(context.Background(), pipelineParams(), Hooks{})
		m.Close()
		var bad *graph.NonFiniteError
		require.ErrorAs(t, err, &bad)
		require.Contains(t, name, bad.Layer)
	}
}

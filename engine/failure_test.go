package engine

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// without returns the tensors whose names do not begin with a prefix.
func without(tensors []tensor.Tensor, prefix string) []tensor.Tensor {
	var out []tensor.Tensor
	for _, t := range tensors {
		if len(t.Name) < len(prefix) || t.Name[:len(prefix)] != prefix {
			out = append(out, t)
		}
	}
	return out
}

// broken has one NaN among the values of another tensor.
type broken struct{ tensor.Source }

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.Source.ReadAt(p, off)
	if off == 0 && len(p) >= 4 {
		binary.LittleEndian.PutUint32(p, math.Float32bits(float32(math.NaN())))
	}
	return n, err
}

func TestLoadSaysWhatIsMissing(t *testing.T) {
	lib := nativetest.Library(t)
	all := readReduced(t, "sdxl").model(t, rename.SDXL)
	ctx := context.Background()
	load := func(tensors []tensor.Tensor, o Options) error {
		m, err := Load(ctx, lib, tensors, o)
		if err == nil {
			m.Close()
		}
		return err
	}
	require.NoError(t, load(all, Options{}))

	err := load(without(all, "cond_stage_model."), Options{})
	require.ErrorIs(t, err, ErrNoTextEncoder)
	assert.ErrorContains(t, err, "token_embedding.weight")
	require.ErrorIs(t, load(without(all, "cond_stage_model.1."), Options{}), ErrNoTextEncoder, "one tower is too narrow")

	noVAE := without(all, "first_stage_model.")
	require.ErrorIs(t, load(noVAE, Options{}), ErrNoDecoder)
	require.NoError(t, load(noVAE, Options{NoPictures: true}), "latents need no VAE")

	err = load(without(all, "model.diffusion_model."), Options{})
	require.ErrorIs(t, err, ErrUnknownFamily)
	assert.ErrorContains(t, err, "Stable Diffusion 1.x", "it says what works")
	require.ErrorIs(t, load(nil, Options{}), ErrUnknownFamily)

	var missing *graph.MissingError
	err = load(without(all, "model.diffusion_model.middle_block.0.emb_layers.1.weight"), Options{})
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, "model.diffusion_model.middle_block.0.emb_layers.1.weight", missing.Tensor)

	require.ErrorIs(t, load(all, Options{Device: "NoSuch7"}), native.ErrNoDevice)
	assert.ErrorContains(t, load(append(all, all[0]), Options{}), "occurs twice")
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Load(canceled, lib, all, Options{})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestNaNIsTracedToItsLayer(t *testing.T) {
	lib := nativetest.Library(t)
	tensors := readReduced(t, "sd2").model(t, rename.SD2)
	const layer = "model.diffusion_model.input_blocks.4.1.norm"
	for i := range tensors {
		if tensors[i].Name == layer+".bias" {
			tensors[i].Source = broken{tensors[i].Source}
		}
	}
	eps := sample.Eps
	ctx := context.Background()
	m, err := Load(ctx, lib, tensors, Options{Threads: 1, Prediction: &eps})
	require.NoError(t, err)
	defer m.Close()
	_, err = m.net.predict(ctx, constant(256, 0.5), latentSize{4, 8, 8}, 10, &condition{text: constant(77*64, 0.1), tokens: 77})
	var bad *graph.NonFiniteError
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, layer, bad.Layer)
	assert.Equal(t, "U-Net", bad.Program)
}

func TestParamsAreChecked(t *testing.T) {
	traits := Traits{Multiple: 64, Factor: 8, Pictures: true}
	for name, change := range map[string]func(*Params){
		"no width":  func(p *Params) { p.Width = 0 },
		"odd size":  func(p *Params) { p.Height = 100 },
		"huge":      func(p *Params) { p.Width = 1 << 20 },
		"no steps":  func(p *Params) { p.Steps = 0 },
		"no batch":  func(p *Params) { p.Batch = 0 },
		"clip skip": func(p *Params) { p.ClipSkip = -1 },
		"one sigma": func(p *Params) { p.Sigmas = []float32{1} },
	} {
		p := DefaultParams()
		require.NoError(t, p.check(traits))
		change(&p)
		assert.Error(t, p.check(traits), name)
	}
	assert.ErrorIs(t, DefaultParams().check(Traits{Multiple: 64}), ErrNoDecoder)
	w, h := traits.FitSize(65, 64)
	assert.Equal(t, []int{128, 64}, []int{w, h})
}

func TestClipSkipBeyondTheTower(t *testing.T) {
	lib := nativetest.Library(t)
	eps := sample.Eps
	m, err := Load(context.Background(), lib, readReduced(t, "sd2").model(t, rename.SD2), Options{Prediction: &eps, NoPictures: true})
	require.NoError(t, err)
	defer m.Close()
	s := m.net.(*stableDiffusion)
	_, err = s.compileTowers(4)
	assert.ErrorContains(t, err, "clip skip 4: the text encoder has 3 layers")
}

// Without a mark in the checkpoint an SD 2.x network is asked what it predicts.
func TestPredictionIsFoundOut(t *testing.T) {
	lib := nativetest.Library(t)
	m, err := Load(context.Background(), lib, readReduced(t, "sd2").model(t, rename.SD2), Options{NoPictures: true})
	require.NoError(t, err)
	defer m.Close()
	assert.Equal(t, sample.Eps, m.Prediction())
	xl := append(readReduced(t, "sdxl").model(t, rename.SDXL), tensor.Tensor{Info: tensor.Info{Name: "v_pred", DType: tensor.F32, Shape: []int64{0}}})
	v, err := Load(context.Background(), lib, xl, Options{NoPictures: true})
	require.NoError(t, err)
	defer v.Close()
	assert.Equal(t, sample.V, v.Prediction())
}

package main

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

// pipelineFiles writes the reduced pipelines of engine/testdata as people have them:
// a file for each component, each in the names of its origin.
func pipelineFiles(t *testing.T, family, dir string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "engine", "testdata", "pipelines.json.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var all map[string]struct{ Tensors map[string][]int64 }
	require.NoError(t, json.NewDecoder(z).Decode(&all))
	parts := make(map[string]synth.Model)
	for name, shape := range all[family].Tensors {
		part, rest, _ := strings.Cut(name, ".")
		parts[part] = append(parts[part], tensor.Info{Name: rest, Shape: shape})
	}
	paths := make(map[string]string)
	for part, m := range parts {
		paths[part] = filepath.Join(dir, part+".safetensors")
		require.NoError(t, synth.Write(paths[part], m, tensor.F16, toHalf))
	}
	return paths
}

// vocabulary writes the small T5 vocabulary.
func vocabulary(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "engine", "text", "testdata", "unigram.model.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw, 0o666))
	return path
}

func TestFluxFromComponents(t *testing.T) {
	useLibrary(t)
	dir := t.TempDir()
	c := pipelineFiles(t, "flux", dir)
	model := []string{"--diffusion-model", c["transformer"], "--clip_l", c["te"], "--t5xxl", c["te2"], "--vae", c["vae"]}
	small := []string{"-p", "a red fox", "-W", "32", "-H", "48", "--steps", "2", "-t", "1"}
	generate := append(append([]string{"generate"}, model...), small...)
	out := filepath.Join(dir, "fox.png")
	fails(t, exitFailed, "--t5-tokenizer FILE", append(generate, "-o", out)...)
	tokens := vocabulary(t, filepath.Join(dir, "words.model"))
	r := ok(t, append(generate, "-o", out, "--t5-tokenizer", tokens)...)
	require.Contains(t, r.stderr, "FLUX.1 dev")
	picture, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(picture), "CFG scale: 1, Seed: 42, Size: 32x48")
	require.Contains(t, string(picture), "Schedule type: flux")

	// Found beside the encoder; another guidance is another picture.
	vocabulary(t, filepath.Join(dir, "spiece.model"))
	again, other := filepath.Join(dir, "again.png"), filepath.Join(dir, "other.png")
	ok(t, append(generate, "-o", again)...)
	ok(t, append(generate, "-o", other, "--guidance", "9")...)
	b, err := os.ReadFile(again)
	require.NoError(t, err)
	require.Equal(t, picture, b)
	b, err = os.ReadFile(other)
	require.NoError(t, err)
	require.NotEqual(t, picture, b)

	// The matrix has every matrix of the network, by the names convert looks them up by.
	matrix := filepath.Join(dir, "flux.gguf")
	r = ok(t, append(append([]string{"imatrix", "collect", "-o", matrix}, model...), small...)...)
	require.Regexp(t, `coverage: (\d+) of (\d+) weights`, r.stderr)
	entries := openMatrix(t, matrix)
	for _, name := range []string{
		"model.diffusion_model.double_blocks.0.img_attn.qkv.weight", "model.diffusion_model.single_blocks.0.linear2.weight",
		"text_encoders.t5xxl.transformer.encoder.block.1.layer.1.DenseReluDense.wo.weight",
		"text_encoders.clip_l.transformer.text_model.encoder.layers.2.mlp.fc1.weight",
	} {
		require.Contains(t, entries, name)
	}
	quantized := filepath.Join(dir, "flux-q4_0.gguf")
	r = ok(t, "convert", "--diffusion-model", c["transformer"], "-o", quantized, "--type", "q4_0", "--imatrix", matrix, "--convert-name", "--require-imatrix")
	require.Contains(t, r.stdout, "imatrix: ")

	// A quantized network runs as it is.
	model[1] = quantized
	ok(t, append(append(append([]string{"generate"}, model...), small...), "-o", filepath.Join(dir, "q4.png"), "--fa")...)
}

func TestSD3FromComponents(t *testing.T) {
	useLibrary(t)
	dir := t.TempDir()
	c := pipelineFiles(t, "sd3", dir)
	tokens := vocabulary(t, filepath.Join(dir, "spiece.model"))
	small := []string{"-p", "a red fox", "-n", "blurry", "-W", "32", "-H", "48", "--steps", "2", "-t", "1"}
	run := func(name string, args ...string) []byte {
		out := filepath.Join(dir, name)
		ok(t, append(append([]string{"generate", "-o", out, "--diffusion-model", c["transformer"], "--vae", c["vae"]}, args...), small...)...)
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		return b
	}
	whole := run("whole.png", "--clip_l", c["te"], "--clip_g", c["te2"], "--t5xxl", c["te3"])
	require.Contains(t, string(whole), "Model: SD 3.5 medium")
	require.Contains(t, string(whole), "CFG scale: 7")
	// Any encoder may be absent, and each counts.
	require.NotEqual(t, whole, run("no-t5.png", "--clip_l", c["te"], "--clip_g", c["te2"]))
	require.NotEqual(t, whole, run("no-clip.png", "--t5xxl", c["te3"], "--t5-tokenizer", tokens))
	require.NotEqual(t, whole, run("no-l.png", "--clip_g", c["te2"], "--t5xxl", c["te3"]))
	require.NotEqual(t, whole, run("shift.png", "--clip_l", c["te"], "--clip_g", c["te2"], "--t5xxl", c["te3"], "--flow-shift", "1"))
	fails(t, exitFailed, "no text encoder", append([]string{"generate", "-o", filepath.Join(dir, "x.png"), "--diffusion-model", c["transformer"], "--vae", c["vae"]}, small...)...)
	fails(t, exitFailed, "no VAE decoder", append([]string{"generate", "-o", filepath.Join(dir, "x.png"), "--diffusion-model", c["transformer"], "--clip_g", c["te2"]}, small...)...)
}

// A diffusers folder holds everything, the tokenizer too.
func TestFluxFromFolder(t *testing.T) {
	useLibrary(t)
	dir := t.TempDir()
	c := pipelineFiles(t, "flux", dir)
	folder := filepath.Join(dir, "pipeline")
	for part, place := range map[string]string{
		"transformer": "transformer/diffusion_pytorch_model.safetensors", "vae": "vae/diffusion_pytorch_model.safetensors",
		"te": "text_encoder/model.safetensors", "te2": "text_encoder_2/model.safetensors",
	} {
		to := filepath.Join(folder, filepath.FromSlash(place))
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o777))
		require.NoError(t, os.Rename(c[part], to))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "model_index.json"), []byte(`{"_class_name":"FluxPipeline"}`), 0o666))
	args := []string{"generate", "-m", folder, "-p", "a red fox", "-W", "32", "-H", "32", "--steps", "1", "-t", "1", "-o", filepath.Join(dir, "out.png")}
	fails(t, exitFailed, "no tokenizer for the T5 encoder", args...)
	require.NoError(t, os.Mkdir(filepath.Join(folder, "tokenizer_2"), 0o777))
	vocabulary(t, filepath.Join(folder, "tokenizer_2", "spiece.model"))
	r := ok(t, args...)
	require.Contains(t, r.stderr, "FLUX.1 dev")
}

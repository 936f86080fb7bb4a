package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/convert"
)

func TestComponentPrefixes(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "x.safetensors"), nil, rampTensor("w", 2, 32))
	want := map[string]string{
		"model": "w", "clip_l": "text_encoders.clip_l.transformer.w", "clip_g": "text_encoders.clip_g.transformer.w",
		"clip_vision": "cond_stage_model.transformer.w", "t5xxl": "text_encoders.t5xxl.transformer.w", "llm": "text_encoders.llm.w",
		"llm_vision": "text_encoders.llm.visual.w", "diffusion-model": "model.diffusion_model.w",
		"high-noise-diffusion-model": "model.high_noise_diffusion_model.w", "uncond-diffusion-model": "model.diffusion_model.uncond.w",
		"vae": "vae.w", "embeddings-connectors": "w", "audio-vae": "w", "control-net": "w",
	}
	require.Len(t, convert.Roles(), len(want))
	for _, role := range convert.Roles() {
		out := filepath.Join(dir, "out.gguf")
		ok(t, "convert", "--"+role.String(), in, "-o", out, "--overwrite")
		require.Equal(t, map[string]string{want[role.String()]: "f32"}, types(t, out), role)
	}
	// A prefix that is there is not added again.
	prefixed := writeFile(t, filepath.Join(dir, "y.safetensors"), nil, rampTensor("model.diffusion_model.w", 2, 32))
	ok(t, "convert", "-d", prefixed, "-o", filepath.Join(dir, "y.gguf"))
	require.Equal(t, map[string]string{"model.diffusion_model.w": "f32"}, types(t, filepath.Join(dir, "y.gguf")))
}

func TestLaterComponentReplaces(t *testing.T) {
	dir := t.TempDir()
	whole := writeFile(t, filepath.Join(dir, "whole.safetensors"), nil, rampTensor("vae.decoder.conv_in.weight", 2, 32), rampTensor("a", 2, 32))
	vae := writeFile(t, filepath.Join(dir, "vae.safetensors"), nil, filled("decoder.conv_in.weight", 7, 4, 32))
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", whole, "--vae", vae, "-o", out)
	require.Contains(t, r.stderr, "replaces")
	require.Contains(t, r.stderr, whole)
	require.Contains(t, r.stderr, vae)
	got := contents(t, out)
	require.Len(t, got, 2)
	require.Equal(t, []int64{4, 32}, got["vae.decoder.conv_in.weight"].Shape)
}

func TestUnusedTensors(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil,
		rampTensor("betas", 10), rampTensor("alphas_cumprod", 10), rampTensor("model_ema.decay", 1), rampTensor("a", 2, 32),
		rampTensor("cond_stage_model.transformer.text_model.embeddings.position_ids", 1, 77))
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", in, "-o", out)
	require.Equal(t, map[string]string{"alphas_cumprod": "f32", "a": "f32"}, types(t, out))
	require.Contains(t, r.stdout, "left out: 3 tensors that no runtime reads")
	ok(t, "convert", "-m", in, "-o", out, "--overwrite", "--keep-unused")
	require.Len(t, types(t, out), 5)
	// On the prefixed name too.
	t5 := writeFile(t, filepath.Join(dir, "t5.safetensors"), nil, rampTensor("encoder.embed_tokens.weight", 2, 32), rampTensor("shared.weight", 2, 32))
	ok(t, "convert", "--t5xxl", t5, "-o", out, "--overwrite")
	require.Equal(t, map[string]string{"text_encoders.t5xxl.transformer.shared.weight": "f32"}, types(t, out))
}

func TestIncludeExclude(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a.weight", 2, 32), rampTensor("a.bias", 32), rampTensor("b.weight", 2, 32))
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", in, "-o", out, "--include", `^a\.`, "--exclude", "bias")
	require.Equal(t, map[string]string{"a.weight": "f32"}, types(t, out))
	require.Contains(t, r.stdout, "left out: 2 tensors by --include and --exclude")
	fails(t, exitFailed, "no tensors to write", "convert", "-m", in, "-o", out, "--overwrite", "--include", "nope")
}

func TestSplitComponents(t *testing.T) {
	dir := t.TempDir()
	unet := writeFile(t, filepath.Join(dir, "d.safetensors"), nil, rampTensor("double_blocks.0.img_attn.qkv.weight", 2, 32))
	vae := writeFile(t, filepath.Join(dir, "v.safetensors"), nil, rampTensor("decoder.conv_in.weight", 2, 32))
	to := filepath.Join(dir, "parts")
	ok(t, "convert", "-d", unet, "--vae", vae, "--split-components", to, "--type", "q8_0")
	require.Equal(t, map[string]string{"model.diffusion_model.double_blocks.0.img_attn.qkv.weight": "q8_0"}, types(t, filepath.Join(to, "diffusion_model.gguf")))
	require.Equal(t, map[string]string{"vae.decoder.conv_in.weight": "q8_0"}, types(t, filepath.Join(to, "vae.gguf")))
	fails(t, exitFailed, "already exists", "convert", "-d", unet, "--vae", vae, "--split-components", to)
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("double_blocks.0.img_attn.qkv.weight", 2, 32), rampTensor("img_in.weight", 2, 32), rampTensor("single_blocks.0.linear1.weight", 2, 32))
	first := func(path string) string {
		for name := range types(t, path) {
			if len(name) >= 13 && name[len(name)-13:] == "img_in.weight" {
				return name
			}
		}
		return ""
	}
	for args, want := range map[[2]string]string{
		{"-m", "keep"}: "img_in.weight", {"-m", "ldm"}: "model.diffusion_model.img_in.weight", {"-m", "comfy"}: "img_in.weight",
		{"-d", "keep"}: "model.diffusion_model.img_in.weight", {"-d", "ldm"}: "model.diffusion_model.img_in.weight", {"-d", "comfy"}: "img_in.weight",
	} {
		out := filepath.Join(dir, "out.gguf")
		ok(t, "convert", args[0], in, "--names", args[1], "-o", out, "--overwrite")
		require.Equal(t, want, first(out), args)
	}
}

// The text encoders of SDXL live elsewhere than those of later models; the
// neighbour's convert does not know that.
func TestEncodersOfSDXL(t *testing.T) {
	dir := t.TempDir()
	clip := writeFile(t, filepath.Join(dir, "g.safetensors"), nil, rampTensor("text_model.encoder.layers.0.mlp.fc1.weight", 2, 32))
	out := filepath.Join(dir, "out.gguf")
	ok(t, "convert", "--clip_g", clip, "-o", out, "--family", "sdxl")
	require.Contains(t, types(t, out), "cond_stage_model.1.transformer.text_model.encoder.layers.0.mlp.fc1.weight")
	ok(t, "convert", "--clip_g", clip, "-o", out, "--family", "sd3", "--overwrite")
	require.Contains(t, types(t, out), "text_encoders.clip_g.transformer.text_model.encoder.layers.0.mlp.fc1.weight")
	ok(t, "convert", "--clip_g", clip, "-o", out, "--compat", "sd-cli", "--overwrite")
	require.Contains(t, types(t, out), "text_encoders.clip_g.transformer.text_model.encoder.layers.0.mlp.fc1.weight")
}

func TestMistakenComponent(t *testing.T) {
	dir := t.TempDir()
	clip := writeFile(t, filepath.Join(dir, "clip.safetensors"), nil, rampTensor("text_model.encoder.layers.0.mlp.fc1.weight", 2, 32))
	r := ok(t, "convert", "--vae", clip, "-o", filepath.Join(dir, "a.gguf"))
	require.Contains(t, r.stderr, "is given as --vae, but looks like: CLIP text encoder")
	lora := writeFile(t, filepath.Join(dir, "lora.safetensors"), nil, rampTensor("lora_unet_down.lora_up.weight", 2, 32), rampTensor("lora_unet_down.lora_down.weight", 2, 32))
	r = ok(t, "convert", "-m", lora, "-o", filepath.Join(dir, "b.gguf"))
	require.Contains(t, r.stderr, "is a LoRA, not a model")
}

func TestDiffusersFolder(t *testing.T) {
	dir := t.TempDir()
	put := func(path string, tensors ...raw) {
		full := filepath.Join(dir, filepath.FromSlash(path))
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
		writeFile(t, full, nil, tensors...)
	}
	put("unet/diffusion_pytorch_model.safetensors", rampTensor("conv_in.weight", 2, 32))
	put("unet/diffusion_pytorch_model.fp16.safetensors", rampTensor("conv_in.weight", 4, 32))
	put("vae/diffusion_pytorch_model.safetensors", rampTensor("decoder.conv_in.weight", 2, 32))
	put("text_encoder/model.safetensors", rampTensor("text_model.encoder.layers.0.mlp.fc1.weight", 2, 32))
	put("text_encoder_2/model.safetensors", rampTensor("text_model.encoder.layers.0.mlp.fc1.weight", 2, 32))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model_index.json"), []byte(`{"_class_name":"X","unet":["diffusers","U"],"vae":["diffusers","V"],"safety_checker":[null,null]}`), 0o600))
	out := filepath.Join(dir, "out.gguf")
	ok(t, "convert", "-m", dir, "-o", out, "--convert-name", "--family", "sdxl")
	got := contents(t, out)
	require.Equal(t, []int64{2, 32}, got["model.diffusion_model.input_blocks.0.0.weight"].Shape)
	for _, name := range []string{
		"first_stage_model.decoder.conv_in.weight",
		"cond_stage_model.transformer.text_model.encoder.layers.0.mlp.fc1.weight",
		"cond_stage_model.1.transformer.text_model.encoder.layers.0.mlp.fc1.weight",
	} {
		require.Contains(t, got, name)
	}
	ok(t, "convert", "-m", dir, "-o", out, "--convert-name", "--family", "sdxl", "--variant", "fp16", "--overwrite")
	require.Equal(t, []int64{4, 32}, contents(t, out)["model.diffusion_model.input_blocks.0.0.weight"].Shape)
	require.Contains(t, ok(t, "inspect", dir).stdout, "diffusers")
}

func TestDiffusersNamesInGGUFAreWarnedOf(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil,
		rampTensor("single_transformer_blocks.0.attn.to_q.weight", 4, 32), rampTensor("x_embedder.weight", 4, 64), rampTensor("context_embedder.weight", 4, 32),
		rampTensor("norm_out.linear.weight", 4, 32), rampTensor("time_text_embed.text_embedder.linear_1.weight", 4, 32))
	r := ok(t, "convert", "--diffusion-model", in, "-o", filepath.Join(dir, "kept.gguf"))
	require.Contains(t, r.stderr, "--names ldm changes them")
	r = ok(t, "convert", "--diffusion-model", in, "-o", filepath.Join(dir, "kept.safetensors"))
	require.NotContains(t, r.stderr, "diffusers layout")
}

// A VAE cut out of a whole checkpoint has the names it had there.
func TestVAEWithTheNamesOfAWholeCheckpoint(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "vae.safetensors"), nil, rampTensor("first_stage_model.decoder.conv_in.weight", 2, 8))
	out := filepath.Join(dir, "out.safetensors")
	ok(t, "convert", "--vae", in, "-o", out)
	require.Equal(t, map[string]string{"first_stage_model.decoder.conv_in.weight": "f32"}, types(t, out))
}

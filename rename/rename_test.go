package rename_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

// f32 makes a tensor whose elements count up from start.
func f32(name string, start float32, shape ...int64) tensor.Tensor {
	n, err := tensor.Elements(shape)
	if err != nil {
		panic(err)
	}
	raw := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(start+float32(i)))
	}
	return tensor.Tensor{Info: tensor.Info{Name: name, DType: tensor.F32, Shape: shape}, Source: bytes.NewReader(raw)}
}

func floats(t *testing.T, x tensor.Source) []float32 {
	t.Helper()
	raw := make([]byte, x.Size())
	n, err := x.ReadAt(raw, 0)
	require.Equal(t, len(raw), n)
	require.True(t, err == nil || err == io.EOF)
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

func infos(names ...string) []tensor.Info {
	var out []tensor.Info
	for _, n := range names {
		name, shape, _ := strings.Cut(n, " ")
		info := tensor.Info{Name: name, DType: tensor.F16}
		for s := range strings.FieldsSeq(shape) {
			v := int64(0)
			for _, c := range s {
				v = 10*v + int64(c-'0')
			}
			info.Shape = append(info.Shape, v)
		}
		if info.Shape == nil {
			info.Shape = []int64{1}
		}
		out = append(out, info)
	}
	return out
}

func TestFault044SplitProjectionsAreJoinedInOrder(t *testing.T) {
	in := []tensor.Tensor{
		f32("transformer.transformer_blocks.0.attn.to_k.weight", 200, 4, 8),
		f32("transformer.transformer_blocks.0.attn.to_q.weight", 100, 4, 8),
		f32("transformer.transformer_blocks.0.attn.to_v.weight", 300, 4, 8),
		f32("transformer.x_embedder.bias", 0, 3),
	}
	r, err := rename.Apply(rename.Flux, in)
	require.NoError(t, err)
	require.Len(t, r.Tensors, 2)
	qkv := r.Tensors[0]
	require.Equal(t, "model.diffusion_model.double_blocks.0.img_attn.qkv.weight", qkv.Name)
	require.Equal(t, []int64{12, 8}, qkv.Shape)
	require.Equal(t, []int{1, 0, 2}, qkv.From)
	got := floats(t, qkv.Source)
	require.Equal(t, []float32{100, 200, 300}, []float32{got[0], got[32], got[64]})
	part := make([]byte, 10)
	n, err := qkv.Source.ReadAt(part, 124) // across the seam
	require.NoError(t, err)
	require.Equal(t, 10, n)
	require.Equal(t, float32(200), math.Float32frombits(binary.LittleEndian.Uint32(part[4:])))
	require.Equal(t, "model.diffusion_model.img_in.bias", r.Tensors[1].Name)
}

func TestIncompleteTripleStaysAndIsSaid(t *testing.T) {
	in := []tensor.Tensor{f32("transformer.transformer_blocks.0.attn.to_q.weight", 0, 4, 8), f32("transformer.transformer_blocks.0.attn.to_v.weight", 0, 4, 8)}
	r, err := rename.Apply(rename.Flux, in)
	require.NoError(t, err)
	require.Len(t, r.Tensors, 2)
	require.Len(t, r.Incomplete, 2)
	require.Equal(t, "model.diffusion_model.transformer_blocks.0.attn.to_q.weight", r.Tensors[0].Name)
}

func TestPartsThatDoNotFit(t *testing.T) {
	q, k, v := "transformer.transformer_blocks.7.attn.to_q.weight", "transformer.transformer_blocks.7.attn.to_k.weight", "transformer.transformer_blocks.7.attn.to_v.weight"
	wrong := f32(k, 0, 4, 8)
	wrong.DType = tensor.I32
	for _, bad := range []tensor.Tensor{f32(k, 0, 4, 9), f32(k, 0, 5, 8), f32(k, 0, 32), wrong} {
		_, err := rename.Apply(rename.Flux, []tensor.Tensor{f32(q, 0, 4, 8), bad, f32(v, 0, 4, 8)})
		var fe *rename.FuseError
		require.ErrorAs(t, err, &fe)
		require.Equal(t, k, fe.Part)
		require.ErrorContains(t, err, "double_blocks.7.img_attn.qkv")
	}
}

func TestHalvesAreSwapped(t *testing.T) {
	r, err := rename.Apply(rename.Flux, []tensor.Tensor{f32("transformer.norm_out.linear.weight", 0, 4, 2), f32("transformer.norm_out.linear.bias", 0, 4)})
	require.NoError(t, err)
	require.Equal(t, "model.diffusion_model.final_layer.adaLN_modulation.1.weight", r.Tensors[0].Name)
	require.True(t, r.Tensors[0].Swapped)
	require.Equal(t, []float32{4, 5, 6, 7, 0, 1, 2, 3}, floats(t, r.Tensors[0].Source))
	require.Equal(t, []float32{2, 3, 0, 1}, floats(t, r.Tensors[1].Source))
	_, err = rename.Apply(rename.Flux, []tensor.Tensor{f32("transformer.norm_out.linear.bias", 0, 5)})
	require.ErrorContains(t, err, "halves")
}

// In SD3 only the last block's context modulation has the halves the other way round.
func TestSD3SwapsTheLastContextModulation(t *testing.T) {
	r, err := rename.Apply(rename.SD3, []tensor.Tensor{
		f32("transformer.transformer_blocks.0.norm1_context.linear.bias", 0, 12), f32("transformer.transformer_blocks.0.attn.to_add_out.weight", 0, 2, 2),
		f32("transformer.transformer_blocks.1.norm1_context.linear.bias", 0, 4),
	})
	require.NoError(t, err)
	require.False(t, r.Tensors[0].Swapped)
	require.True(t, r.Tensors[2].Swapped)
	require.Equal(t, "model.diffusion_model.joint_blocks.1.context_block.adaLN_modulation.1.bias", r.Tensors[2].Name)
}

func TestCollisionsAreRefused(t *testing.T) {
	_, err := rename.Apply(rename.SD1, []tensor.Tensor{f32("unet.conv_in.weight", 0, 1), f32("model.diffusion_model.input_blocks.0.0.weight", 0, 1)})
	var ce *rename.CollisionError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, "model.diffusion_model.input_blocks.0.0.weight", ce.Name)
}

func TestRename(t *testing.T) {
	for _, tt := range []struct {
		family   rename.Family
		from, to string
	}{
		{rename.SD1, "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q.weight", "model.diffusion_model.input_blocks.4.1.transformer_blocks.0.attn1.to_q.weight"},
		{rename.SD1, "unet.up_blocks.2.upsamplers.0.conv.weight", "model.diffusion_model.output_blocks.8.2.conv.weight"},
		{rename.SDXL, "unet.up_blocks.0.upsamplers.0.conv.weight", "model.diffusion_model.output_blocks.2.2.conv.weight"},
		{rename.SDXL, "unet.add_embedding.linear_2.bias", "model.diffusion_model.label_emb.0.2.bias"},
		{rename.SDXL, "te.text_model.encoder.layers.3.mlp.fc1.weight", "cond_stage_model.transformer.text_model.encoder.layers.3.mlp.fc1.weight"},
		{rename.SDXL, "te2.text_model.encoder.layers.3.mlp.fc1.weight", "cond_stage_model.1.transformer.text_model.encoder.layers.3.mlp.fc1.weight"},
		{rename.SDXL, "text_encoder_2.text_projection.weight", "cond_stage_model.1.transformer.text_model.text_projection"},
		{rename.SDXL, "conditioner.embedders.1.model.transformer.resblocks.5.mlp.c_fc.bias", "cond_stage_model.1.transformer.text_model.encoder.layers.5.mlp.fc1.bias"},
		{rename.SDXL, "text_encoders.clip_g.transformer.text_model.final_layer_norm.bias", "cond_stage_model.1.transformer.text_model.final_layer_norm.bias"},
		{rename.SD1, "vae.decoder.up_blocks.0.resnets.2.conv_shortcut.weight", "first_stage_model.decoder.up.3.block.2.nin_shortcut.weight"},
		{rename.SD1, "vae.encoder.mid_block.attentions.0.to_out.0.bias", "first_stage_model.encoder.mid.attn_1.proj_out.bias"},
		{rename.Flux, "te.text_model.encoder.layers.0.layer_norm1.bias", "text_encoders.clip_l.transformer.text_model.encoder.layers.0.layer_norm1.bias"},
		{rename.Flux, "te2.encoder.block.3.layer.0.SelfAttention.q.weight", "text_encoders.t5xxl.transformer.encoder.block.3.layer.0.SelfAttention.q.weight"},
		{rename.Flux, "text_encoders.t5xxl.transformer.enc.blk.3.attn_q.weight", "text_encoders.t5xxl.transformer.encoder.block.3.layer.0.SelfAttention.q.weight"},
		{rename.Flux, "transformer.single_transformer_blocks.45.proj_out.weight", "model.diffusion_model.single_blocks.45.linear2.weight"},
		{rename.SD3, "te3.shared.weight", "text_encoders.t5xxl.transformer.shared.weight"},
		{rename.Flux, "model.diffusion_model.double_blocks.0.img_mod.lin.weight", "model.diffusion_model.double_blocks.0.img_mod.lin.weight"},
		{rename.Wan2, "transformer.blocks.3.attn2.to_out.0.weight", "model.diffusion_model.blocks.3.cross_attn.o.weight"},
		{rename.ZImage, "transformer.layers.2.attention.to_out.0.weight", "model.diffusion_model.layers.2.attention.out.weight"},
	} {
		require.Equal(t, tt.to, tt.family.Rename(tt.from), tt.family)
	}
}

// What the golden data's tool does to names, spot-checked there on real runs.
func TestRenameCompatKeepsTheQuirks(t *testing.T) {
	for _, tt := range []struct {
		family   rename.Family
		from, to string
	}{
		{rename.SDXL, "te.1.text_model.encoder.layers.0.mlp.fc1.weight", "cond_stage_model.transformer.1.text_model.encoder.layers.0.mlp.fc1.weight"},
		{rename.SDXL, "text_encoder.2.x", "cond_stage_model.transformer.2.x"},
		{rename.Flux, "model.diffusion_model.transformer_blocks.0.attn.to_k.weight", "model.diffusion_model.double_blocks.0.img_attn.qkv.weight.1"},
		{rename.Flux, "model.diffusion_model.transformer_blocks.0.attn.to_k.weight_scale", "model.diffusion_model.double_blocks.0.img_attn.qkv.weight.1_scale"},
		{rename.Flux, "model.diffusion_model.transformer_blocks.19.attn.to_k.weight", "model.diffusion_model.transformer_blocks.19.attn.to_k.weight"},
		{rename.SD1, "text_encoders.clip_l.transformer.text_model.final_layer_norm.bias", "text_encoders.clip_l.transformer.text_model.final_layer_norm.bias"},
	} {
		require.Equal(t, tt.to, tt.family.RenameCompat(tt.from))
	}
}

func TestFault051PrefixesDoNotMatterToDetection(t *testing.T) {
	for _, prefix := range []string{"", "model.diffusion_model.", "diffusion_model.", "transformer."} {
		f := rename.Detect(infos(prefix + "transformer_blocks.0.img_mod.1.weight 8 8"))
		require.Equal(t, rename.QwenImage, f.Family, "%q", prefix)
		require.Equal(t, prefix == "", f.Bare)
		require.Equal(t, []string{prefix + "transformer_blocks.0.img_mod.1.weight"}, f.Evidence)
	}
}

func TestFault050ArchitectureOfEveryFamilyThatComfyUILoads(t *testing.T) {
	for arch, names := range map[string][]string{
		"flux":       {"double_blocks.0.img_attn.proj.weight 8 8"},
		"sd3":        {"joint_blocks.0.x_block.attn.qkv.weight 8 8"},
		"aura":       {"double_layers.3.modX.1.weight 8 8"},
		"hidream":    {"double_stream_blocks.0.block.ff_i.shared_experts.w3.weight 8 8"},
		"cosmos":     {"blocks.0.mlp.layer1.weight 8 8"},
		"ltxv":       {"adaln_single.emb.timestep_embedder.linear_1.bias 8", "transformer_blocks.0.scale_shift_table 6 8", "patchify_proj.weight 8 128"},
		"hyvid":      {"txt_in.individual_token_refiner.blocks.0.adaLN_modulation.1.weight 8 8"},
		"wan":        {"blocks.0.cross_attn.norm_k.weight 8", "patch_embedding.weight 5120 16 1 2 2"},
		"lumina2":    {"cap_embedder.0.weight 8", "cap_embedder.1.weight 2304 8"},
		"qwen_image": {"transformer_blocks.0.img_mod.1.weight 8 8"},
		"sdxl":       {"input_blocks.0.0.weight 320 4 3 3", "output_blocks.0.0.in_layers.0.weight 8", "label_emb.0.0.weight 8 8", "middle_block.1.norm.weight 8", "a.attn2.to_k.weight 8 2048"},
		"sd1":        {"input_blocks.0.0.weight 320 4 3 3", "output_blocks.0.0.in_layers.0.weight 8", "middle_block.1.norm.weight 8", "a.attn2.to_k.weight 8 768"},
	} {
		f := rename.Detect(infos(names...))
		require.Equal(t, arch, f.Family.Architecture(), "%v -> %s", names, f.Family)
	}
	require.Equal(t, rename.Unknown, rename.Detect(infos("foo 3")).Family)
	require.Empty(t, rename.Unknown.Architecture())
}

func TestDetectVariants(t *testing.T) {
	unet := func(in, context string, more ...string) []string {
		return append([]string{"model.diffusion_model.input_blocks.0.0.weight 320 " + in + " 3 3", "model.diffusion_model.output_blocks.0.0.in_layers.0.weight 8",
			"model.diffusion_model.input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight 640 " + context}, more...)
	}
	mid := "model.diffusion_model.middle_block.1.norm.weight 8"
	for want, names := range map[rename.Family][]string{
		rename.SD1:          unet("4", "768", mid),
		rename.SD1Inpaint:   unet("9", "768", mid),
		rename.SD1Pix2Pix:   unet("8", "768", mid),
		rename.SD1Tiny:      unet("4", "768", "model.diffusion_model.output_blocks.7.1.x 8"),
		rename.SDXS512DS:    unet("4", "768"),
		rename.SD2:          unet("4", "1024", mid),
		rename.SD2Inpaint:   unet("9", "1024", mid),
		rename.SDXL:         unet("4", "2048", mid, "model.diffusion_model.output_blocks.3.1.transformer_blocks.1.x 8"),
		rename.SDXLInpaint:  unet("9", "2048", mid),
		rename.SDXLSSD1B:    unet("4", "2048", "model.diffusion_model.output_blocks.3.1.transformer_blocks.1.x 8"),
		rename.SDXLVega:     unet("4", "2048"),
		rename.SDXLRefiner:  unet("4", "1280", mid, "model.diffusion_model.label_emb.0.0.weight 8 8"),
		rename.Flux:         {"double_blocks.0.img_attn.proj.weight 8 8", "img_in.weight 3072 64"},
		rename.FluxFill:     {"double_blocks.0.img_attn.proj.weight 8 8", "img_in.weight 3072 384"},
		rename.FluxControls: {"double_blocks.0.img_attn.proj.weight 8 8", "img_in.weight 3072 128"},
		rename.Flex2:        {"double_blocks.0.img_attn.proj.weight 8 8", "img_in.weight 3072 196"},
		rename.LongCat:      {"double_blocks.0.img_attn.proj.weight 8 8", "txt_in.weight 3072 3584"},
		rename.Chroma:       {"double_blocks.0.img_attn.proj.weight 8 8", "distilled_guidance_layer.in_proj.weight 8 8"},
		rename.Flux2:        {"double_stream_modulation_img.lin.weight 8 8", "single_blocks.47.linear1.weight 8 8"},
		rename.Flux2Klein:   {"double_stream_modulation_img.lin.weight 8 8"},
		rename.Wan2:         {"blocks.0.cross_attn.norm_k.weight 8", "patch_embedding.weight 5120 16 1 2 2"},
		rename.Wan22I2V:     {"blocks.0.cross_attn.norm_k.weight 8", "patch_embedding.weight 5120 36 1 2 2"},
		rename.Wan22TI2V:    {"blocks.0.cross_attn.norm_k.weight 8", "patch_embedding.weight 3072 48 1 2 2"},
		rename.ZImage:       {"cap_embedder.0.weight 2560", "layers.0.attention.qkv.weight 8 8", "x_embedder.weight 3840 64"},
	} {
		require.Equal(t, want, rename.Detect(infos(names...)).Family, "%v", names)
	}
}

func TestDetectSynthetic(t *testing.T) {
	require.Equal(t, rename.SD1, rename.Detect(synth.SD15()).Family)
	require.Equal(t, rename.SD1, rename.DetectCompat(synth.SD15()))
	require.Equal(t, rename.Flux, rename.Detect(synth.Flux(1, 512)).Family)
	require.Equal(t, rename.Unknown, rename.DetectCompat(synth.Flux(1, 512)), "a bare name says nothing to that tool")
}

func TestPrediction(t *testing.T) {
	base := []string{"input_blocks.0.0.weight 320 4 3 3", "output_blocks.0.0.in_layers.0.weight 8", "middle_block.1.x 8", "a.attn2.to_k.weight 8 2048"}
	require.Equal(t, rename.PredictionEps, rename.Detect(infos(base...)).Prediction)
	v := rename.Detect(infos(append(base, "v_pred 0")...))
	require.Equal(t, rename.PredictionV, v.Prediction)
	require.Equal(t, "v_pred", v.Why)
	require.Equal(t, rename.PredictionEDM, rename.Detect(infos(append(base, "edm_vpred.sigma_max 1")...)).Prediction)
}

func TestContents(t *testing.T) {
	require.Equal(t, []rename.Content{rename.ContentLoRA}, rename.Contents(infos("lora_unet_down_blocks_0.lora_down.weight 4 8", "lora_unet_down_blocks_0.lora_up.weight 8 4", "x.alpha 1")))
	require.Equal(t, []rename.Content{rename.ContentDiffusion, rename.ContentCLIP, rename.ContentVAE}, rename.Contents(synth.SD15()))
	require.Equal(t, []rename.Content{rename.ContentT5}, rename.Contents(infos("encoder.block.0.layer.0.SelfAttention.q.weight 8 8")))
	require.Equal(t, []rename.Content{rename.ContentVAE}, rename.Contents(infos("decoder.up_blocks.0.resnets.0.conv1.weight 8 8 3 3")))
	require.Empty(t, rename.Contents(infos("foo 1")))
}

func TestCanonicalNames(t *testing.T) {
	require.Contains(t, rename.CanonicalNames(rename.Flux, "double_blocks.0.img_mod.lin.weight"), "model.diffusion_model.double_blocks.0.img_mod.lin.weight")
	require.Contains(t, rename.CanonicalNames(rename.SD1, "unet.mid_block.attentions.0.proj_in.weight"), "model.diffusion_model.middle_block.1.proj_in.weight")
}

func TestIgnored(t *testing.T) {
	for _, n := range []string{"betas", "model_ema.decay", "cond_stage_model.transformer.text_model.embeddings.position_ids", "text_encoders.llm.lm_head.weight"} {
		require.True(t, rename.Ignored(n), n)
	}
	for _, n := range []string{"alphas_cumprod", "v_pred", "edm_vpred.sigma_max", "model_ema.other"} {
		require.False(t, rename.Ignored(n), n)
	}
}

func TestSeFi(t *testing.T) {
	r, err := rename.SeFi([]tensor.Tensor{
		f32("backbone.context_embedder.weight", 0, 2, 2), f32("backbone.norm_out.linear.weight", 0, 2, 2), f32("dual_time_embed.semantic_embedder.linear_1.weight", 0, 1),
		f32("backbone.double_stream_modulation_img.linear.weight", 0, 1), f32("backbone.transformer_blocks.0.attn.add_q_proj.weight", 0, 2, 2),
		f32("backbone.transformer_blocks.0.attn.add_k_proj.weight", 4, 2, 2), f32("backbone.transformer_blocks.0.attn.add_v_proj.weight", 8, 2, 2),
		f32("backbone.single_transformer_blocks.3.attn.to_qkv_mlp_proj.weight", 0, 1), f32("backbone.transformer_blocks.0.attn.to_q.weight", 0, 2, 2),
	})
	require.NoError(t, err)
	var names []string
	for _, x := range r.Tensors {
		names = append(names, x.Name)
	}
	require.Equal(t, []string{"txt_in.weight", "final_layer.adaLN_modulation.1.weight", "dual_time_embed.semantic_embedder.linear_1.weight",
		"double_stream_modulation_img.lin.weight", "double_blocks.0.txt_attn.qkv.weight", "single_blocks.3.linear1.weight", "backbone.transformer_blocks.0.attn.to_q.weight"}, names)
	require.Equal(t, []float32{2, 3, 0, 1}, floats(t, r.Tensors[1].Source))
	require.Equal(t, []string{"backbone.transformer_blocks.0.attn.to_q.weight"}, r.Incomplete)
}

func TestQwen3VL(t *testing.T) {
	r, err := rename.Qwen3VL([]tensor.Tensor{f32("model.language_model.layers.0.mlp.up_proj.weight", 0, 1), f32("model.visual.blocks.0.norm1.weight", 0, 1)})
	require.NoError(t, err)
	require.Equal(t, "model.layers.0.mlp.up_proj.weight", r.Tensors[0].Name)
	require.Equal(t, "model.visual.blocks.0.norm1.weight", r.Tensors[1].Name)
}

func TestMap(t *testing.T) {
	m, err := rename.ParseMap(strings.NewReader("# names\n^unet\\. -> model.\n\n(.*)\\.gamma$ -> ${1}.weight\n"))
	require.NoError(t, err)
	require.Equal(t, "model.a.gamma", m.Rename("unet.a.gamma"), "the first rule that matches decides")
	require.Equal(t, "b.weight", m.Rename("b.gamma"))
	require.Equal(t, "c", m.Rename("c"))
	for text, line := range map[string]int{"a b": 1, "\n( -> x": 2, " -> x": 1, "": 1} {
		_, err := rename.ParseMap(strings.NewReader(text))
		var me *rename.MapError
		require.ErrorAs(t, err, &me, text)
		require.Equal(t, line, me.Line)
	}
	m, err = rename.ParseMap(strings.NewReader(".* ->"))
	require.NoError(t, err)
	_, err = m.Apply([]tensor.Tensor{f32("a", 0, 1)})
	require.ErrorContains(t, err, "empty")
	m, err = rename.ParseMap(strings.NewReader("[0-9]+ -> N"))
	require.NoError(t, err)
	_, err = m.Apply([]tensor.Tensor{f32("a1", 0, 1), f32("a2", 0, 1)})
	var ce *rename.CollisionError
	require.ErrorAs(t, err, &ce)
}

func FuzzParseMap(f *testing.F) {
	f.Add("a -> b\n# c\n(x)(?P<n>y) -> ${n}$1")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := rename.ParseMap(strings.NewReader(text))
		if err == nil {
			m.Rename("some.name.0.weight")
		}
	})
}

// One scale for a whole part says nothing about a third of the fused tensor.
func TestScalesOfWholePartsAreNotJoined(t *testing.T) {
	const at = "transformer.transformer_blocks.0.attn.to_"
	parts := func(tail string, shape ...int64) []tensor.Tensor {
		return []tensor.Tensor{f32(at+"q."+tail, 1, shape...), f32(at+"k."+tail, 2, shape...), f32(at+"v."+tail, 3, shape...)}
	}
	for _, shape := range [][]int64{{}, {1}, {1, 1}} {
		_, err := rename.Apply(rename.Flux, parts("weight_scale", shape...))
		var fe *rename.FuseError
		require.ErrorAs(t, err, &fe, "%v", shape)
		require.Equal(t, at+"q.weight_scale", fe.Part)
		require.ErrorContains(t, err, "keep the names")
	}
	r, err := rename.Apply(rename.Flux, parts("weight_scale", 4, 1)) // one for each row
	require.NoError(t, err)
	require.Equal(t, []int64{12, 1}, r.Tensors[0].Shape)
	r, err = rename.Apply(rename.Flux, parts("bias", 1))
	require.NoError(t, err)
	require.Equal(t, []int64{3}, r.Tensors[0].Shape)
}

func TestKrea2ModulationBecomesOneVector(t *testing.T) {
	r, err := rename.Apply(rename.Krea2, []tensor.Tensor{f32("transformer.transformer_blocks.3.scale_shift_table", 0, 6, 2), f32("transformer.final_layer.scale_shift_table", 0, 2, 2)})
	require.NoError(t, err)
	require.Equal(t, "model.diffusion_model.blocks.3.mod.lin", r.Tensors[0].Name)
	require.Equal(t, []int64{12}, r.Tensors[0].Shape)
	require.Equal(t, "model.diffusion_model.last.modulation.lin", r.Tensors[1].Name)
	require.Equal(t, []int64{2, 2}, r.Tensors[1].Shape)
}

// The autoencoders of Wan 2.1 and 2.2 share names in the diffusers layout only.
func TestWan22AutoencoderKeepsItsLevels(t *testing.T) {
	for from, to := range map[string]string{
		"vae.encoder.down_blocks.1.resnets.0.conv_shortcut.weight": "first_stage_model.encoder.downsamples.1.downsamples.0.shortcut.weight",
		"vae.encoder.down_blocks.1.downsampler.time_conv.weight":   "first_stage_model.encoder.downsamples.1.downsamples.2.time_conv.weight",
		"vae.decoder.up_blocks.1.resnets.2.conv2.bias":             "first_stage_model.decoder.upsamples.1.upsamples.2.residual.6.bias",
		"vae.decoder.up_blocks.0.upsampler.resample.1.weight":      "first_stage_model.decoder.upsamples.0.upsamples.3.resample.1.weight",
	} {
		require.Equal(t, to, rename.Wan22TI2V.Rename(from))
	}
	require.Equal(t, "first_stage_model.decoder.upsamples.6.residual.6.bias", rename.Wan2.Rename("vae.decoder.up_blocks.1.resnets.2.conv2.bias"))
}

// regexp puts nothing where a replacement names a group that is not there, and
// reads $1x as a group called 1x.
func TestMapRefusesGroupsThatAreNotThere(t *testing.T) {
	for text, group := range map[string]string{"^(a)b -> $1c": "1c", "(a) -> ${2}": "2", "(?P<n>a) -> ${m}": "m"} {
		_, err := rename.ParseMap(strings.NewReader("# table\n" + text))
		var me *rename.MapError
		require.ErrorAs(t, err, &me, text)
		require.Equal(t, 2, me.Line)
		require.ErrorContains(t, err, group)
	}
	m, err := rename.ParseMap(strings.NewReader("(?P<n>a)(b) -> ${n}.$2.$$1.${0}"))
	require.NoError(t, err)
	require.Equal(t, "a.b.$1.ab", m.Rename("ab"))
	_, err = rename.ParseMap(strings.NewReader("a -> b\nc -> " + strings.Repeat("d", 1<<17)))
	var me *rename.MapError
	require.ErrorAs(t, err, &me)
	require.Equal(t, 2, me.Line)
}

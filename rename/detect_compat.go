package rename

import (
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// compatScan is what stable-diffusion.cpp remembers of the names it has seen.
type compatScan struct {
	flux, flux2, block47, wan, imageEmb   bool
	unet, two, mid1, deep, late, attn1024 bool
	patch, text, in0, in2, context        int64
}

// compatVerdicts end the scan: the row's texts are looked for in one name, and
// the exact name, if any, among all.
var compatVerdicts = []struct {
	has, exact string
	family     Family
}{
	{prefixDiffusion + "net.lq_proj.latent_proj.0.weight", "", PID},
	{"embed_image_indicator.weight", "", Ideogram4},
	{prefixDiffusion + "txtfusion.projector.weight", "", Krea2},
	{prefixDiffusion + "text_fusion.projector.weight", "", Krea2},
	{prefixDiffusion + "nerf_final_layer_conv.", "", ChromaRadiance},
	{prefixDiffusion + "joint_blocks.", "", SD3},
	{"model.x_embedder.proj1.weight", "model.language_model.layers.0.self_attn.q_proj.weight", HiDreamO1},
	{prefixDiffusion + "transformer_blocks.0.attn.norm_added_q.weight", prefixDiffusion + "transformer_blocks.0.img_mlp.w1.weight", Lens},
	{"net.img_embedder.proj1.weight", "", MiniT2I},
	{prefixDiffusion + "transformer_blocks.0.img_mod.1.weight", "", QwenImage},
	{prefixDiffusion + "txt_in.individual_token_refiner.blocks.0.adaLN_modulation.1.weight", "", HunyuanVideo},
	{"llm_adapter.blocks.0.cross_attn.q_proj.weight", "", Anima},
	{"dual_time_embed.semantic_embedder.linear_1.weight", "", SeFiImage},
	{prefixDiffusion + "double_blocks.0.img_mlp.gate_proj.weight", "", OvisImage},
	{prefixDiffusion + "cap_embedder.0.weight", "", ZImage},
	{"double_stream_layers.0.img_instruct_attn.processor.img_to_q.weight", "", BooguImage},
	{prefixDiffusion + "layers.0.adaLN_sa_ln.weight", "", ErnieImage},
	{prefixDiffusion + "adaln_single.emb.timestep_embedder.linear_1.bias", "", LTXAV},
	{prefixDiffusion + "video_patch_proj.weight", prefixDiffusion + "audio_patch_proj.weight", MiniMaxH3},
	{prefixDiffusion + "patch_embedder.weight", "", LingBotVideo},
	{prefixDiffusion + "input_blocks.8.0.time_mixer.mix_factor", "", SVD},
}

// compatEmbeddings are the token embeddings whose width tells SD1 from SD2.
var compatEmbeddings = []string{
	"cond_stage_model.transformer.text_model.embeddings.token_embedding.weight",
	"cond_stage_model.model.token_embedding.weight",
	"text_model.embeddings.token_embedding.weight",
	"te.text_model.embeddings.token_embedding.weight",
	"conditioner.embedders.0.model.token_embedding.weight",
	"conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight",
}

// DetectCompat says what stable-diffusion.cpp takes a checkpoint for, from the
// names as its convert mode sees them (prefixes of the options added, in the
// order in which they are read). It decides under which names its imatrix files
// know the tensors.
func DetectCompat(infos []tensor.Info) Family {
	byName := make(map[string]tensor.Info, len(infos))
	for _, t := range infos {
		byName[t.Name] = t
	}
	ne := func(name string, i int) int64 {
		s := byName[name].Shape
		if i >= len(s) {
			return 1
		}
		if i == 3 && len(s) > 4 { // the outer axes are folded
			n, err := tensor.Elements(s[:len(s)-3])
			if err != nil {
				return 1
			}
			return n
		}
		return s[len(s)-1-i]
	}
	s := compatScan{patch: 1, text: 1, in0: 1, in2: 1, context: 1}
	for _, t := range infos {
		if f, ok := s.verdict(t.Name, byName, ne); ok {
			return f
		}
		s.see(t.Name, ne)
	}
	return s.decide()
}

func (s *compatScan) verdict(name string, all map[string]tensor.Info, ne func(string, int) int64) (Family, bool) {
	for _, v := range compatVerdicts {
		if !strings.Contains(name, v.has) {
			continue
		}
		if _, ok := all[v.exact]; v.exact != "" && !ok {
			continue
		}
		if v.family != QwenImage {
			return v.family, true
		}
		if in := prefixDiffusion + "img_in.weight"; all[in].Name != "" && ne(in, 0) == 128 {
			return MageFlow, true
		}
		if _, ok := all[prefixDiffusion+"time_text_embed.addition_t_embedding.weight"]; ok {
			return QwenImageLayered, true
		}
		return QwenImage, true
	}
	return Unknown, false
}

func (s *compatScan) see(name string, ne func(string, int) int64) {
	has := func(texts ...string) bool {
		for _, t := range texts {
			if strings.Contains(name, t) {
				return true
			}
		}
		return false
	}
	const d = prefixDiffusion
	s.flux = s.flux || has(d+"double_blocks.", d+"single_transformer_blocks.")
	s.flux2 = s.flux2 || has(d+"double_stream_modulation_img.lin.weight")
	s.block47 = s.block47 || has("single_blocks.47.linear1.weight")
	s.wan = s.wan || has(d+"blocks.0.cross_attn.norm_k.weight")
	if has(d + "patch_embedding.weight") {
		s.patch = ne(name, 3)
	}
	s.imageEmb = s.imageEmb || has(d+"img_emb")
	s.unet = s.unet || has(d+"input_blocks.", "unet.down_blocks.")
	s.two = s.two || has("conditioner.embedders.1", "cond_stage_model.1", "te.1")
	s.mid1 = s.mid1 || has(d+"middle_block.1.", "unet.mid_block.resnets.1.")
	s.deep = s.deep || has(d+"output_blocks.3.1.transformer_blocks.1", "unet.up_blocks.1.attentions.0.transformer_blocks.1")
	if has(d+"output_blocks.7.1", "unet.up_blocks.2.attentions.1") {
		s.late = true
		if k := d + "output_blocks.7.1.transformer_blocks.0.attn1.to_k.weight"; name == k && ne(k, 0) == 1024 {
			s.attn1024 = true
		}
	}
	for _, e := range compatEmbeddings {
		if name == e {
			s.text = ne(name, 0)
		}
	}
	switch name {
	case d + "input_blocks.0.0.weight", d + "img_in.weight", "unet.conv_in.weight":
		s.in0, s.in2 = ne(name, 0), ne(name, 2)
	case d + "txt_in.weight", d + "context_embedder.weight":
		s.context = ne(name, 0)
	}
}

func (s *compatScan) decide() Family {
	switch {
	case s.wan && s.patch == 184320 && !s.imageEmb:
		return Wan22I2V
	case s.wan && s.patch == 147456 && !s.imageEmb:
		return Wan22TI2V
	case s.wan:
		return Wan2
	case s.unet && s.two:
		switch {
		case s.in2 == 9:
			return SDXLInpaint
		case s.in2 == 8:
			return SDXLPix2Pix
		case !s.mid1 && !s.deep:
			return SDXLVega
		case !s.mid1:
			return SDXLSSD1B
		}
		return SDXL
	case s.flux && !s.flux2:
		switch {
		case s.context == 3584:
			return LongCat
		case s.in0 == 384:
			return FluxFill
		case s.in0 == 128:
			return FluxControls
		case s.in0 == 196:
			return Flex2
		}
		return Flux
	case s.flux2 && s.block47:
		return Flux2
	case s.flux2:
		return Flux2Klein
	case s.text == 768:
		switch {
		case s.in2 == 9:
			return SD1Inpaint
		case s.in2 == 8:
			return SD1Pix2Pix
		case !s.mid1 && !s.late:
			return SDXS512DS
		case !s.mid1:
			return SD1Tiny
		}
		return SD1
	case s.text == 1024:
		switch {
		case s.in2 == 9:
			return SD2Inpaint
		case !s.mid1 && s.attn1024:
			return SDXS09
		case !s.mid1:
			return SD2Tiny
		}
		return SD2
	}
	return Unknown
}

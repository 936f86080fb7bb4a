package rename

import (
	"fmt"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// Found is what Detect says of a checkpoint.
type Found struct {
	Family     Family
	Evidence   []string // names, with shapes where they decide
	Prediction Prediction
	Why        string // what the prediction was guessed from
	Diffusers  bool   // names follow the diffusers layout
	Bare       bool   // the diffusion model's names have no prefix
}

// diffusionPrefixes are the beginnings that diffusion models' names may have,
// longest first; detection looks behind them.
var diffusionPrefixes = []string{
	prefixDiffusion, prefixHighNoise, "diffusion_model.", "unet.", "transformer.",
	"backbone.", "model.", "net.", "control_model.",
}

// names is a checkpoint seen from inside its diffusion model.
type names struct {
	infos []tensor.Info
	shape map[string][]int64 // by name behind the prefix
	full  map[string]string  // as in the file
}

func newNames(infos []tensor.Info) *names {
	n := &names{infos: infos, shape: make(map[string][]int64, len(infos)), full: make(map[string]string, len(infos))}
	for _, t := range infos {
		name := t.Name
		n.put(name, t)
		for _, p := range diffusionPrefixes {
			if rest, ok := strings.CutPrefix(name, p); ok {
				n.put(rest, t)
				name = rest
			}
		}
	}
	return n
}

func (n *names) put(name string, t tensor.Info) {
	if _, ok := n.shape[name]; !ok {
		n.shape[name], n.full[name] = t.Shape, t.Name
	}
}

func (n *names) has(name string) bool {
	_, ok := n.shape[name]
	return ok
}

// dim returns axis i of a tensor's shape, or -1.
func (n *names) dim(name string, i int) int64 {
	s := n.shape[name]
	if i < 0 {
		i += len(s)
	}
	if i < 0 || i >= len(s) {
		return -1
	}
	return s[i]
}

// first returns a name that contains the text.
func (n *names) first(text string) (string, bool) {
	for _, t := range n.infos {
		if strings.Contains(t.Name, text) {
			return t.Name, true
		}
	}
	return "", false
}

// mark is one row of the detection table: the family, and names all of which
// must be there. Names of diffusers' layout are marked so.
type mark struct {
	family    Family
	diffusers bool
	names     []string
}

// detection lists marks from special to general; the first that fits decides.
var detection = []mark{
	{ESRGAN, false, []string{"1.sub.0.RDB1.conv1.0.weight"}},
	{ESRGAN, false, []string{"body.0.rdb1.conv1.weight"}},
	{PID, false, []string{"lq_proj.latent_proj.0.weight"}},
	{Ideogram4, false, []string{"embed_image_indicator.weight"}},
	{Krea2, false, []string{"txtfusion.projector.weight"}},
	{Krea2, true, []string{"text_fusion.projector.weight"}},
	{HiDreamO1, false, []string{"x_embedder.proj1.weight", "language_model.layers.0.self_attn.q_proj.weight"}},
	{Lens, false, []string{"transformer_blocks.0.attn.norm_added_q.weight", "transformer_blocks.0.img_mlp.w1.weight"}},
	{MiniT2I, false, []string{"img_embedder.proj1.weight"}},
	{QwenImageLayered, false, []string{"transformer_blocks.0.img_mod.1.weight", "time_text_embed.addition_t_embedding.weight"}},
	{QwenImage, false, []string{"transformer_blocks.0.img_mod.1.weight"}},
	{HunyuanVideo, false, []string{"txt_in.individual_token_refiner.blocks.0.adaLN_modulation.1.weight"}},
	{Anima, false, []string{"llm_adapter.blocks.0.cross_attn.q_proj.weight"}},
	{SeFiImage, true, []string{"dual_time_embed.semantic_embedder.linear_1.weight", "transformer_blocks.0.attn.to_q.weight"}},
	{SeFiImage, false, []string{"dual_time_embed.semantic_embedder.linear_1.weight"}},
	{OvisImage, false, []string{"double_blocks.0.img_mlp.gate_proj.weight"}},
	{BooguImage, false, []string{"double_stream_layers.0.img_instruct_attn.processor.img_to_q.weight"}},
	{ErnieImage, false, []string{"layers.0.adaLN_sa_ln.weight"}},
	{HiDream, false, []string{"double_stream_blocks.0.block.ff_i.shared_experts.w3.weight"}},
	{AuraFlow, false, []string{"double_layers.3.modX.1.weight"}},
	{AuraFlow, false, []string{"double_layers.0.attn.w1q.weight"}},
	{AuraFlow, true, []string{"joint_transformer_blocks.3.ff_context.out_projection.weight"}},
	{Cosmos, false, []string{"blocks.0.adaln_modulation_cross_attn.1.weight", "blocks.0.mlp.layer1.weight"}},
	{Cosmos, false, []string{"blocks.0.mlp.layer1.weight"}},
	{LTXAV, false, []string{"adaln_single.emb.timestep_embedder.linear_1.bias", "audio_patchify_proj.weight"}},
	{LTXAV, false, []string{"adaln_single.emb.timestep_embedder.linear_1.bias", "audio_adaln_single.linear.weight"}},
	{LTXAV, true, []string{"time_embed.emb.timestep_embedder.linear_1.bias", "audio_proj_in.weight"}},
	// PixArt, Allegro and Sana have all of LTXV's names but the first layer's.
	{LTXV, false, []string{"adaln_single.emb.timestep_embedder.linear_1.bias", "transformer_blocks.0.scale_shift_table", "patchify_proj.weight"}},
	{LTXV, true, []string{"time_embed.emb.timestep_embedder.linear_1.bias", "transformer_blocks.0.scale_shift_table", "proj_in.weight"}},
	{MiniMaxH3, false, []string{"video_patch_proj.weight", "audio_patch_proj.weight"}},
	{LingBotVideo, false, []string{"patch_embedder.weight"}},
	{Wan2, false, []string{"blocks.0.cross_attn.norm_k.weight", "patch_embedding.weight"}},
	{Wan2, true, []string{"blocks.0.attn2.norm_k.weight", "patch_embedding.weight"}},
	{Flux2, false, []string{"double_stream_modulation_img.lin.weight"}},
	{Flux2, true, []string{"double_stream_modulation_img.linear.weight"}},
	{ChromaRadiance, false, []string{"nerf_final_layer_conv.norm.scale"}},
	{ChromaRadiance, false, []string{"nerf_final_layer_conv.conv.weight"}},
	{Chroma, false, []string{"distilled_guidance_layer.in_proj.weight", "double_blocks.0.img_attn.proj.weight"}},
	{Chroma, true, []string{"distilled_guidance_layer.in_proj.weight"}},
	{SD3, false, []string{"joint_blocks.0.x_block.attn.qkv.weight"}},
	{SD3, true, []string{"transformer_blocks.0.attn.add_q_proj.weight", "pos_embed.proj.weight"}},
	{Lumina2, true, []string{"time_caption_embed.caption_embedder.1.weight"}},
	{ZImage, true, []string{"all_x_embedder.2-1.weight"}},
	{ZImage, false, []string{"cap_embedder.0.weight", "layers.0.attention.qkv.weight"}},
	{ZImage, false, []string{"cap_embedder.0.weight"}},
	{Flux, false, []string{"double_blocks.0.img_attn.proj.weight"}},
	{Flux, false, []string{"double_blocks.0.img_attn.qkv.weight"}},
	// HunyuanVideo, HunyuanImage, Bria, Ovis and ControlNets have single blocks too,
	// but other ends.
	{Flux, true, []string{"single_transformer_blocks.0.attn.to_q.weight", "x_embedder.weight", "context_embedder.weight", "norm_out.linear.weight", "time_text_embed.text_embedder.linear_1.weight"}},
	{LongCat, true, []string{"single_transformer_blocks.0.attn.to_q.weight", "x_embedder.weight", "context_embedder.weight", "norm_out.linear.weight", "time_embed.timestep_embedder.linear_1.weight"}},
	{SVD, false, []string{"input_blocks.8.0.time_mixer.mix_factor"}},
	{SD1, false, []string{"input_blocks.0.0.weight", "output_blocks.0.0.in_layers.0.weight"}},
	{SD1, true, []string{"down_blocks.0.resnets.0.conv1.weight", "up_blocks.0.resnets.0.conv1.weight", "time_embedding.linear_1.weight"}},
}

// Detect says which family the names and shapes belong to, whatever prefix the
// diffusion model has and in whichever of the two layouts. Family is Unknown if
// nothing fits.
func Detect(infos []tensor.Info) Found {
	n := newNames(infos)
	var f Found
	for _, m := range detection {
		all := true
		for _, name := range m.names {
			all = all && n.has(name)
		}
		if !all {
			continue
		}
		f.Family, f.Diffusers = m.family, m.diffusers
		for _, name := range m.names {
			f.Evidence = append(f.Evidence, n.full[name])
		}
		f.Bare = n.full[m.names[0]] == m.names[0]
		break
	}
	f.refine(n)
	f.predict(n)
	return f
}

// because adds a tensor with its shape to the evidence.
func (f *Found) because(n *names, name string) {
	f.Evidence = append(f.Evidence, n.full[name]+" "+tensor.ShapeString(n.shape[name]))
}

// refine tells variants apart by shape.
func (f *Found) refine(n *names) {
	switch f.Family {
	case QwenImage:
		if n.dim("img_in.weight", 1) == 128 {
			f.Family = MageFlow
			f.because(n, "img_in.weight")
		}
	case Wan2:
		f.refineWan(n)
	case Flux2:
		if !n.has("single_blocks.47.linear1.weight") && !n.has("single_transformer_blocks.47.attn.to_qkv_mlp_proj.weight") {
			f.Family = Flux2Klein
		}
	case Flux:
		f.refineFlux(n)
	case LongCat:
		// Bria has the same names and a T5's width.
		if n.dim("context_embedder.weight", 1) != 3584 {
			*f = Found{}
			return
		}
		f.because(n, "context_embedder.weight")
	case ZImage:
		// Lumina 2 has the same names; its width is 2304, Z-Image's 3840.
		if n.dim("x_embedder.weight", 0) == 2304 || n.dim("cap_embedder.1.weight", 0) == 2304 {
			f.Family = Lumina2
			f.because(n, "cap_embedder.1.weight")
		}
	case SD1:
		f.refineUNet(n)
	}
}

func (f *Found) refineWan(n *names) {
	channels := n.dim("patch_embedding.weight", 1)
	if n.has("img_emb.proj.0.bias") || n.has("condition_embedder.image_embedder.norm1.weight") {
		return
	}
	width := n.dim("patch_embedding.weight", 0)
	if len(n.shape["patch_embedding.weight"]) == 4 { // folded: output and input channels are one axis
		channels, width = 0, 0
		switch n.dim("patch_embedding.weight", 0) {
		case 184320:
			channels, width = 36, 5120
		case 147456:
			channels, width = 48, 3072
		}
	}
	switch {
	case width*channels == 184320:
		f.Family = Wan22I2V
	case width*channels == 147456:
		f.Family = Wan22TI2V
	default:
		return
	}
	f.because(n, "patch_embedding.weight")
}

func (f *Found) refineFlux(n *names) {
	in, context := "img_in.weight", "txt_in.weight"
	if f.Diffusers {
		in, context = "x_embedder.weight", "context_embedder.weight"
	}
	switch {
	case n.dim(context, 1) == 3584:
		f.Family = LongCat
		f.because(n, context)
		return
	case n.dim(in, 1) == 384:
		f.Family = FluxFill
	case n.dim(in, 1) == 128:
		f.Family = FluxControls
	case n.dim(in, 1) == 196:
		f.Family = Flex2
	default:
		return
	}
	f.because(n, in)
}

// refineUNet tells the UNets apart by the width of their text context, their
// input channels and the blocks they leave out.
func (f *Found) refineUNet(n *names) {
	in, mid, deep, late := "input_blocks.0.0.weight", "middle_block.1.", "output_blocks.3.1.transformer_blocks.1.", "output_blocks.7.1."
	if f.Diffusers {
		in, mid, deep, late = "conv_in.weight", "mid_block.attentions.0.", "up_blocks.1.attentions.0.transformer_blocks.1.", "up_blocks.2.attentions.1."
	}
	var context int64
	for _, t := range n.infos {
		if strings.HasSuffix(t.Name, ".attn2.to_k.weight") && len(t.Shape) == 2 {
			context = t.Shape[1]
			f.Evidence = append(f.Evidence, t.Name+" "+tensor.ShapeString(t.Shape))
			break
		}
	}
	_, hasMid := n.first(mid)
	_, hasDeep := n.first(deep)
	_, hasLate := n.first(late)
	channels := n.dim(in, 1)
	byChannels := func(base, inpaint, pix2pix Family) Family {
		switch channels {
		case 9:
			f.because(n, in)
			return inpaint
		case 8:
			f.because(n, in)
			return pix2pix
		}
		return base
	}
	labels := n.has("label_emb.0.0.weight") || n.has("add_embedding.linear_1.weight")
	switch {
	case context == 1280 && labels:
		f.Family = SDXLRefiner
	case context == 2048 || context == 0 && labels:
		f.Family = byChannels(SDXL, SDXLInpaint, SDXLPix2Pix)
		switch {
		case f.Family == SDXL && !hasMid && !hasDeep:
			f.Family = SDXLVega
		case f.Family == SDXL && !hasMid:
			f.Family = SDXLSSD1B
		}
	case context == 1024:
		f.Family = byChannels(SD2, SD2Inpaint, SD2)
		if f.Family == SD2 && !hasMid {
			f.Family = SD2Tiny
			if n.dim("output_blocks.7.1.transformer_blocks.0.attn1.to_k.weight", 1) == 1024 {
				f.Family = SDXS09
			}
		}
	default:
		f.Family = byChannels(SD1, SD1Inpaint, SD1Pix2Pix)
		switch {
		case f.Family == SD1 && !hasMid && !hasLate:
			f.Family = SDXS512DS
		case f.Family == SD1 && !hasMid:
			f.Family = SD1Tiny
		}
	}
}

// predict guesses what the model predicts.
func (f *Found) predict(n *names) {
	f.Prediction = f.Family.Prediction()
	switch {
	case n.has("edm_vpred.sigma_max"):
		f.Prediction, f.Why = PredictionEDM, "edm_vpred.sigma_max"
	case n.has("v_pred"):
		f.Prediction, f.Why = PredictionV, "v_pred"
	case f.Family.Known():
		f.Why = fmt.Sprintf("what %s models usually predict", f.Family.Title())
	}
}

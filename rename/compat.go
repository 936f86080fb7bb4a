package rename

import "strings"

// compatPrefixes are stable-diffusion.cpp's top-level prefixes in the order in
// which its hash map yields them where two match: "text_encoder." hides
// "text_encoder.2.", and "te." hides the "te.1." that its diffusers reader adds.
var compatPrefixes = pairs{
	{"diffusion_model.", prefixDiffusion},
	{"unet.", prefixDiffusion},
	{"transformer.", prefixDiffusion},
	{"vae.", prefixVAE},
	{"text_encoder.", prefixCondHF},
	{"te.", prefixCondHF},
	{"conditioner.embedders.0.open_clip.", prefixCond},
	{prefixEmbedders0, prefixCond},
	{prefixEmbedders1, prefixCond1},
	{"te2.", prefixCond1HF},
	{"te3.", prefixT5},
	{"clip_vision.", prefixCondHF},
}

// compatPrefix applies the one prefix that fits, including those whose target
// depends on the family.
func compatPrefix(f Family, name string) string {
	te1, clipL, clipG := prefixCondHF, prefixClipL, prefixClipG
	if f.In(GroupFlux) {
		te1 = prefixClipL
	}
	if f.In(GroupUNet) {
		clipL, clipG = prefixCondHF, prefixCond1HF
	}
	byFamily := pairs{{"te1.", te1}, {"clip_l.", clipL}, {"clip_g.", clipG}}
	if out := byFamily.firstPrefix(name); out != name {
		return out
	}
	return compatPrefixes.firstPrefix(name)
}

// RenameCompat returns the name that stable-diffusion.cpp's --convert-name
// gives a tensor of the family, which is also the name its imatrix knows the
// tensor by. Families it does not know are renamed as what it takes them for.
// LoRA names are left alone.
func (f Family) RenameCompat(name string) string {
	f = f.CompatFamily()
	if f == ESRGAN {
		return run(esrganStages, name)
	}
	if out, ok := renameIPAdapter(f, name); ok {
		return out
	}
	name = compatPrefix(f, name)
	if f.In(GroupQwenVL) {
		name = compatQwen3VL(name)
	}
	if rest, ok := strings.CutPrefix(name, prefixDiffusion); ok {
		if t := f.row().diffusion; t != nil {
			name = prefixDiffusion + t.renameCompat(rest)
		}
	}
	name = renameEncoder(name)
	name = firstStage(f, name, (*table).renameCompat)
	if out, ok := photoMaker.whole(name); ok {
		name = out
	}
	return renameControlNet(f, name)
}

var encoderPrefixes = []string{prefixCond1, prefixCond, "conditioner.embedders.", prefixEncoders}

// renameEncoder renames a text encoder's tensor below its prefix.
func renameEncoder(name string) string {
	for _, prefix := range encoderPrefixes {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return prefix + encoderTable(rest).renameCompat(rest)
		}
	}
	return name
}

// encoderTable picks the table by what the name says it belongs to.
func encoderTable(name string) *table {
	switch {
	case strings.Contains(name, "t5xxl"):
		return &t5Text
	case strings.Contains(name, "llm.visual"):
		return &llmVision
	case strings.Contains(name, "llm"):
		return &llmText
	default:
		return &clipText
	}
}

// firstStage renames a VAE's tensor below its prefix, in either flavour.
func firstStage(f Family, name string, rename func(*table, string) string) string {
	for _, prefix := range []string{prefixVAE, "vae."} {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		rest = rename(f.row().vae.table(), rest)
		if f.In(GroupTinyVAE) {
			return prefixTinyVAE + rest
		}
		return prefix + rest
	}
	return name
}

func compatQwen3VL(name string) string {
	if rest, ok := strings.CutPrefix(name, "text_encoders.llm.model.visual."); ok {
		name = prefixLLMVisual + rest
	}
	if !strings.HasPrefix(name, prefixLLMVisual) {
		return name
	}
	if strings.Contains(name, "v.deepstack_merger_list.") || strings.Contains(name, "v.deepstack.") {
		for _, step := range []pairs{qwen3VLDeepstackLayers, qwen3VLDeepstackFC, qwen3VLDeepstackFFN} {
			name = step.eachOnce(name)
		}
		return name
	}
	return qwen3VLVision.eachOnce(name)
}

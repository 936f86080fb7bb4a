package rename

import (
	"fmt"
	"slices"
	"strings"
)

// Family is a kind of diffusion model: an architecture together with the
// variants that differ in shape (inpainting input channels and so on). The zero
// value is Unknown.
type Family uint8

// Families. Those up to ESRGAN are the versions that stable-diffusion.cpp
// tells apart, in its order; the rest it does not know, or takes for another.
const (
	Unknown Family = iota
	SD1
	SD1Inpaint
	SD1Pix2Pix
	SD1Tiny
	SD2
	SD2Inpaint
	SD2Tiny
	SDXS512DS
	SDXS09
	SDXL
	SDXLInpaint
	SDXLPix2Pix
	SDXLVega
	SDXLSSD1B
	SVD
	SD3
	Flux
	FluxFill
	FluxControls
	Flex2
	ChromaRadiance
	Wan2
	Wan22I2V
	Wan22TI2V
	LingBotVideo
	QwenImage
	QwenImageLayered
	HunyuanVideo
	Anima
	Flux2
	Flux2Klein
	LTXAV
	MiniMaxH3
	HiDreamO1
	ZImage
	BooguImage
	OvisImage
	ErnieImage
	Lens
	MiniT2I
	LongCat
	PID
	Ideogram4
	SeFiImage
	Krea2
	MageFlow
	ESRGAN

	SDXLRefiner
	Chroma
	Lumina2
	LTXV
	HiDream
	Cosmos
	AuraFlow

	numFamilies
)

// Group is a set of families that share a name table or a property.
type Group uint16

// Groups of families, as stable-diffusion.cpp draws them.
const (
	GroupSD1 Group = 1 << iota
	GroupSD2
	GroupSDXL
	GroupFlux    // FLUX.1 layout; LongCat has the layout but not the group
	GroupFlux2   // FLUX.2 layout
	GroupWan     // Wan video models
	GroupWanVAE  // use the Wan VAE
	GroupQwenVL  // take a Qwen3-VL text encoder with a vision tower
	GroupTinyVAE // ship a tiny autoencoder in the place of the VAE
	GroupDiT     // a transformer rather than a UNet

	GroupUNet = GroupSD1 | GroupSD2 | GroupSDXL
)

// Prediction is what a diffusion model was trained to predict.
type Prediction uint8

// Kinds of prediction.
const (
	PredictionUnknown Prediction = iota
	PredictionEps                // the noise
	PredictionV                  // velocity, v-parameterization
	PredictionFlow               // rectified flow
	PredictionEDM                // v with EDM's continuous sigmas
)

var predictionNames = [...]string{"unknown", "eps", "v", "flow", "edm"}

// String returns "eps", "v", "flow", "edm" or "unknown".
func (p Prediction) String() string {
	if int(p) >= len(predictionNames) {
		return predictionNames[0]
	}
	return predictionNames[p]
}

// encoderHomes says where the text encoders of a diffusers pipeline
// (text_encoder, text_encoder_2, text_encoder_3) live in the original layout.
type encoderHomes [3]string

// Prefixes of the components in the original layout.
const (
	prefixDiffusion  = "model.diffusion_model."
	prefixHighNoise  = "model.high_noise_diffusion_model."
	prefixVAE        = "first_stage_model."
	prefixTinyVAE    = "tae."
	prefixCond       = "cond_stage_model."
	prefixCond1      = "cond_stage_model.1."
	prefixEncoders   = "text_encoders."
	prefixClipL      = "text_encoders.clip_l.transformer."
	prefixClipG      = "text_encoders.clip_g.transformer."
	prefixT5         = "text_encoders.t5xxl.transformer."
	prefixLLM        = "text_encoders.llm."
	prefixLLMVisual  = "text_encoders.llm.visual."
	prefixCondHF     = "cond_stage_model.transformer."
	prefixCond1HF    = "cond_stage_model.1.transformer."
	prefixEmbedders0 = "conditioner.embedders.0."
	prefixEmbedders1 = "conditioner.embedders.1."
)

var (
	homesCLIP  = encoderHomes{prefixCondHF}
	homesCLIP2 = encoderHomes{prefixCondHF, prefixCond1HF}
	homesFlux  = encoderHomes{prefixClipL, prefixT5}
	homesSD3   = encoderHomes{prefixClipL, prefixClipG, prefixT5}
	homesT5    = encoderHomes{prefixT5}
	homesLLM   = encoderHomes{prefixLLM}
)

type familyRow struct {
	name       string // as given to --family
	title      string
	groups     Group
	arch       string // general.architecture of a GGUF file, "" if no loader knows one
	prediction Prediction
	taken      Family // what stable-diffusion.cpp takes it for, if not itself
	diffusion  *table // names of the diffusion model, nil: no known second spelling
	vae        vaeNames
	encoders   encoderHomes
}

// families is the one table of families. The architecture strings are those
// that ComfyUI-GGUF (commit 795e451) accepts; a family whose original key set
// its own detector files under one of them gets that one.
var families = [numFamilies]familyRow{
	Unknown: {name: "unknown", title: "unknown", vae: vaeLDM, encoders: homesCLIP2},

	SD1:        {"sd1", "Stable Diffusion 1.x", GroupSD1, "sd1", PredictionEps, 0, &unetSD, vaeLDM, homesCLIP},
	SD1Inpaint: {"sd1-inpaint", "Stable Diffusion 1.x inpainting", GroupSD1, "sd1", PredictionEps, 0, &unetSD, vaeLDM, homesCLIP},
	SD1Pix2Pix: {"sd1-pix2pix", "InstructPix2Pix (SD 1.x)", GroupSD1, "sd1", PredictionEps, 0, &unetSD, vaeLDM, homesCLIP},
	SD1Tiny:    {"sd1-tiny", "Stable Diffusion 1.x tiny UNet", GroupSD1, "sd1", PredictionEps, 0, &unetSD, vaeLDM, homesCLIP},
	SD2:        {"sd2", "Stable Diffusion 2.x", GroupSD2, "sd1", PredictionV, 0, &unetSD, vaeLDM, homesCLIP},
	SD2Inpaint: {"sd2-inpaint", "Stable Diffusion 2.x inpainting", GroupSD2, "sd1", PredictionEps, 0, &unetSD, vaeLDM, homesCLIP},
	SD2Tiny:    {"sd2-tiny", "Stable Diffusion 2.x tiny UNet", GroupSD2, "sd1", PredictionEps, 0, &unetSD, vaeLDM, homesCLIP},
	SDXS512DS:  {"sdxs-512-ds", "SDXS-512-DreamShaper", GroupSD1 | GroupTinyVAE, "sd1", PredictionEps, 0, &unetSD, vaeLDM, homesCLIP},
	SDXS09:     {"sdxs-09", "SDXS-512-0.9", GroupSD2 | GroupTinyVAE, "sd1", PredictionEps, 0, &unetSD, vaeLDM, homesCLIP},

	SDXL:        {"sdxl", "Stable Diffusion XL", GroupSDXL, "sdxl", PredictionEps, 0, &unetSDXL, vaeLDM, homesCLIP2},
	SDXLInpaint: {"sdxl-inpaint", "Stable Diffusion XL inpainting", GroupSDXL, "sdxl", PredictionEps, 0, &unetSDXL, vaeLDM, homesCLIP2},
	SDXLPix2Pix: {"sdxl-pix2pix", "InstructPix2Pix (SDXL)", GroupSDXL, "sdxl", PredictionEps, 0, &unetSDXL, vaeLDM, homesCLIP2},
	SDXLVega:    {"sdxl-vega", "Segmind Vega (SDXL)", GroupSDXL, "sdxl", PredictionEps, 0, &unetSDXL, vaeLDM, homesCLIP2},
	SDXLSSD1B:   {"sdxl-ssd1b", "Segmind SSD-1B (SDXL)", GroupSDXL, "sdxl", PredictionEps, 0, &unetSDXL, vaeLDM, homesCLIP2},
	SVD:         {"svd", "Stable Video Diffusion", 0, "", PredictionEDM, 0, nil, vaeLDM, homesCLIP},

	SD3:            {"sd3", "Stable Diffusion 3.x", GroupDiT, "sd3", PredictionFlow, 0, &ditSD3, vaeLDM, homesSD3},
	Flux:           {"flux", "FLUX.1", GroupFlux | GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesFlux},
	FluxFill:       {"flux-fill", "FLUX.1 Fill", GroupFlux | GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesFlux},
	FluxControls:   {"flux-controls", "FLUX.1 Canny/Depth", GroupFlux | GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesFlux},
	Flex2:          {"flex2", "Flex.2", GroupFlux | GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesFlux},
	ChromaRadiance: {"chroma-radiance", "Chroma Radiance", GroupFlux | GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesT5},

	Wan2:         {"wan2", "Wan 2.x", GroupWan | GroupWanVAE | GroupDiT, "wan", PredictionFlow, 0, &ditWan, vaeWan, homesT5},
	Wan22I2V:     {"wan2.2-i2v", "Wan 2.2 I2V", GroupWan | GroupWanVAE | GroupDiT, "wan", PredictionFlow, 0, &ditWan, vaeWan, homesT5},
	Wan22TI2V:    {"wan2.2-ti2v", "Wan 2.2 TI2V", GroupWan | GroupWanVAE | GroupDiT, "wan", PredictionFlow, 0, &ditWan, vaeWan22, homesT5},
	LingBotVideo: {"lingbot-video", "LingBot Video", GroupWanVAE | GroupDiT, "", PredictionFlow, 0, nil, vaeWan, homesLLM},

	QwenImage:        {"qwen-image", "Qwen-Image", GroupWanVAE | GroupDiT, "qwen_image", PredictionFlow, 0, nil, vaeWan, homesLLM},
	QwenImageLayered: {"qwen-image-layered", "Qwen-Image-Layered", GroupWanVAE | GroupDiT, "qwen_image", PredictionFlow, 0, nil, vaeWan, homesLLM},
	HunyuanVideo:     {"hunyuan-video", "HunyuanVideo", GroupDiT, "hyvid", PredictionFlow, 0, &ditHunyuan, vaeKeep, homesLLM},
	Anima:            {"anima", "Anima", GroupWanVAE | GroupDiT, "cosmos", PredictionFlow, 0, &ditAnima, vaeWan, homesLLM},
	Flux2:            {"flux2", "FLUX.2", GroupFlux2 | GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesLLM},
	Flux2Klein:       {"flux2-klein", "FLUX.2 klein", GroupFlux2 | GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesLLM},
	LTXAV:            {"ltxav", "LTX-2 (audio and video)", GroupDiT, "ltxv", PredictionFlow, 0, nil, vaeLDM, homesLLM},
	MiniMaxH3:        {"minimax-h3", "MiniMax H3", GroupQwenVL | GroupDiT, "", PredictionFlow, 0, nil, vaeKeep, homesLLM},
	HiDreamO1:        {"hidream-o1", "HiDream-O1", GroupDiT, "", PredictionFlow, 0, nil, vaeLDM, homesLLM},
	ZImage:           {"z-image", "Z-Image", GroupDiT, "lumina2", PredictionFlow, 0, &ditZImage, vaeLDM, homesLLM},
	BooguImage:       {"boogu-image", "Boogu-Image", GroupQwenVL | GroupDiT, "", PredictionFlow, 0, nil, vaeLDM, homesLLM},
	OvisImage:        {"ovis-image", "Ovis-Image", GroupFlux | GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesLLM},
	ErnieImage:       {"ernie-image", "ERNIE-Image", GroupDiT, "", PredictionFlow, 0, nil, vaeLDM, homesLLM},
	Lens:             {"lens", "Lens", GroupDiT, "", PredictionFlow, 0, nil, vaeLDM, homesLLM},
	MiniT2I:          {"minit2i", "MiniT2I", GroupDiT, "", PredictionFlow, 0, nil, vaeLDM, homesLLM},
	LongCat:          {"longcat", "LongCat-Image", GroupDiT, "flux", PredictionFlow, 0, &ditFlux, vaeLDM, homesLLM},
	PID:              {"pid", "PID", GroupDiT, "", PredictionFlow, 0, nil, vaeLDM, homesLLM},
	Ideogram4:        {"ideogram4", "Ideogram 4", GroupDiT, "", PredictionFlow, 0, nil, vaeLDM, homesLLM},
	SeFiImage:        {"sefi-image", "SeFi-Image", GroupDiT, "", PredictionFlow, 0, &ditSeFi, vaeLDM, homesLLM},
	Krea2:            {"krea2", "Krea 2", GroupQwenVL | GroupWanVAE | GroupDiT, "", PredictionFlow, 0, &ditKrea2, vaeWan, homesLLM},
	MageFlow:         {"mage-flow", "Mage-Flow", GroupQwenVL | GroupDiT, "", PredictionFlow, 0, nil, vaeKeep, homesLLM},
	ESRGAN:           {"esrgan", "ESRGAN upscaler", 0, "", PredictionUnknown, 0, nil, vaeKeep, encoderHomes{}},

	SDXLRefiner: {"sdxl-refiner", "Stable Diffusion XL refiner", 0, "sdxl", PredictionEps, Unknown, &unetRefiner, vaeLDM, encoderHomes{prefixCondHF, prefixCondHF}},
	Chroma:      {"chroma", "Chroma", GroupFlux | GroupDiT, "flux", PredictionFlow, Flux, &ditFlux, vaeLDM, homesT5},
	Lumina2:     {"lumina2", "Lumina Image 2", GroupDiT, "lumina2", PredictionFlow, ZImage, &ditLumina2, vaeLDM, homesLLM},
	LTXV:        {"ltxv", "LTX-Video", GroupDiT, "ltxv", PredictionFlow, LTXAV, &ditLTXV, vaeKeep, homesT5},
	HiDream:     {"hidream", "HiDream-I1", GroupDiT, "hidream", PredictionFlow, Unknown, nil, vaeLDM, homesSD3},
	Cosmos:      {"cosmos", "Cosmos Predict2", GroupDiT, "cosmos", PredictionFlow, Unknown, nil, vaeWan, homesT5},
	AuraFlow:    {"aura", "AuraFlow", GroupDiT, "aura", PredictionFlow, Unknown, nil, vaeLDM, homesT5},
}

func (f Family) row() *familyRow {
	if f >= numFamilies {
		return &families[Unknown]
	}
	return &families[f]
}

// String returns the name that ParseFamily takes: "sd1", "flux-fill".
func (f Family) String() string { return f.row().name }

// Title returns the family's name in prose: "FLUX.1 Fill".
func (f Family) Title() string { return f.row().title }

// Known reports whether f is a family at all.
func (f Family) Known() bool { return f > Unknown && f < numFamilies }

// In reports whether f belongs to any of the groups.
func (f Family) In(g Group) bool { return f.row().groups&g != 0 }

// Architecture returns the general.architecture that a GGUF file of the
// family's diffusion model needs for ComfyUI-GGUF to load it; "" if that loader
// accepts none that fits.
func (f Family) Architecture() string { return f.row().arch }

// Prediction returns what models of the family usually predict. Detect refines
// it with what a checkpoint says about itself.
func (f Family) Prediction() Prediction { return f.row().prediction }

// CompatFamily returns the family that stable-diffusion.cpp would take f for:
// f itself for the versions it knows.
func (f Family) CompatFamily() Family {
	if f <= ESRGAN {
		return f
	}
	return f.row().taken
}

// Families returns every known family in table order.
func Families() []Family {
	all := make([]Family, 0, numFamilies-1)
	for f := Unknown + 1; f < numFamilies; f++ {
		all = append(all, f)
	}
	return all
}

// ParseFamily returns the family with the given name. Case and the difference
// between '-', '_' and '.' do not matter.
func ParseFamily(name string) (Family, error) {
	key := foldFamily(name)
	for _, f := range Families() {
		if foldFamily(f.String()) == key {
			return f, nil
		}
	}
	names := make([]string, 0, numFamilies)
	for _, f := range Families() {
		names = append(names, f.String())
	}
	slices.Sort(names)
	return Unknown, fmt.Errorf("unknown family %q, known are %s", name, strings.Join(names, ", "))
}

func foldFamily(name string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
}

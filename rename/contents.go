package rename

import (
	"regexp"

	"github.com/sdtool/sdtool/tensor"
)

// Content is a kind of component that a file can hold.
type Content string

// Kinds of components.
const (
	ContentDiffusion  Content = "diffusion model"
	ContentVAE        Content = "VAE"
	ContentTinyVAE    Content = "tiny autoencoder"
	ContentCLIP       Content = "CLIP text encoder"
	ContentCLIPVision Content = "CLIP vision encoder"
	ContentT5         Content = "T5 text encoder"
	ContentLLM        Content = "language model"
	ContentControlNet Content = "ControlNet"
	ContentLoRA       Content = "LoRA"
	ContentUpscaler   Content = "ESRGAN upscaler"
)

// marks are patterns by which a component is known; a file has the component if
// any name matches.
var marks = []struct {
	content Content
	pattern *regexp.Regexp
}{
	{ContentControlNet, regexp.MustCompile(`(^|\.)(input_hint_block\.|controlnet_cond_embedding\.|controlnet_down_blocks\.|zero_convs\.)`)},
	{ContentUpscaler, regexp.MustCompile(`^(model\.1\.sub\.0\.RDB1\.|body\.0\.rdb1\.|RRDB_trunk\.0\.)`)},
	{ContentCLIP, regexp.MustCompile(`(text_model\.encoder\.layers\.0\.|(^|[^l]\.)transformer\.resblocks\.0\.)`)},
	{ContentCLIPVision, regexp.MustCompile(`(vision_model\.encoder\.layers\.0\.|visual\.transformer\.resblocks\.0\.)`)},
	{ContentT5, regexp.MustCompile(`(encoder\.block\.0\.layer\.0\.SelfAttention\.|(^|\.)enc\.blk\.0\.)`)},
	{ContentLLM, regexp.MustCompile(`((^|\.)model\.(language_model\.)?layers\.0\.self_attn\.q_proj\.|(^|\.)blk\.0\.attn_q\.)`)},
	{ContentTinyVAE, regexp.MustCompile(`(^|\.)(taesd_)?decoder\.(layers\.)?1\.weight$`)},
	{ContentVAE, regexp.MustCompile(`(^|\.)decoder\.(conv_in|conv1|mid|mid_block|up|up_blocks|upsamples|middle)\.`)},
}

var loraName = regexp.MustCompile(`(\.|_)(lora_(down|up|A|B|mid)|hada_w[12]_[ab]|lokr_w[12]|dora_scale|lora\.(down|up))(\.|$)`)

// Contents says which components the names belong to. A file whose adapter
// names outnumber the others is a LoRA and nothing else.
func Contents(infos []tensor.Info) []Content {
	lora := 0
	found := make(map[Content]bool)
	for _, t := range infos {
		if loraName.MatchString(t.Name) {
			lora++
			continue
		}
		for _, m := range marks {
			if !found[m.content] && m.pattern.MatchString(t.Name) {
				found[m.content] = true
			}
		}
	}
	if lora > 0 && 2*lora > len(infos) {
		return []Content{ContentLoRA}
	}
	var out []Content
	if f := Detect(infos); f.Family.Known() && f.Family != ESRGAN {
		out = append(out, ContentDiffusion)
	}
	for _, m := range marks {
		if found[m.content] {
			out = append(out, m.content)
		}
	}
	return out
}

package rename_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// list is a complete name list that is regular enough to be written as a loop.
type list struct {
	name   string
	family rename.Family
	names  []string
	want   string // every new name
}

// repeat fills %d of each name with the numbers from 0 to n-1.
func repeat(n int, names ...string) []string {
	var out []string
	for i := range n {
		for _, name := range names {
			out = append(out, fmt.Sprintf(name, i))
		}
	}
	return out
}

// weights puts ".weight" or ".bias" behind names.
func weights(ending string, names ...string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name + ending
	}
	return out
}

// under puts a prefix before names.
func under(prefix string, names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = prefix + name
	}
	return out
}

// llamaText is llama.cpp's names of a decoder (gguf-py's MODEL_TENSORS), more being
// what a model has in each layer besides.
func llamaText(layers int, more ...string) []string {
	layer := append([]string{
		"blk.%d.attn_norm.weight", "blk.%d.attn_q.weight", "blk.%d.attn_k.weight", "blk.%d.attn_v.weight", "blk.%d.attn_output.weight",
		"blk.%d.ffn_norm.weight", "blk.%d.ffn_gate.weight", "blk.%d.ffn_up.weight", "blk.%d.ffn_down.weight",
	}, more...)
	names := append([]string{"token_embd.weight", "output_norm.weight"}, repeat(layers, layer...)...)
	return under("text_encoders.llm.", names)
}

// decoder is what Hugging Face calls the same.
const decoder = `^text_encoders\.llm\.model\.(embed_tokens|norm|layers\.\d+\.(input_layernorm|post_attention_layernorm|post_attention_norm|post_ffw_norm|self_attn\.([qkvo]_proj|[qk]_norm)|mlp\.(gate|up|down)_proj))\.(weight|bias)$`

func lists() []list {
	both := func(names ...string) []string {
		return append(weights(".weight", names...), weights(".bias", names...)...)
	}
	attention := func(n int) []string { // of an IP-Adapter
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("ip_adapter.%d.to_k_ip.weight", 2*i+1), fmt.Sprintf("ip_adapter.%d.to_v_ip.weight", 2*i+1))
		}
		return append(out, both("image_proj.proj", "image_proj.norm")...)
	}
	var rrdb []string
	for i := range 23 {
		for r := 1; r <= 3; r++ {
			for c := 1; c <= 5; c++ {
				rrdb = append(rrdb, fmt.Sprintf("model.1.sub.%d.RDB%d.conv%d.0", i, r, c))
			}
		}
	}
	esrgan := func(ends ...string) []string {
		return both(append(append([]string{"model.0", "model.1.sub.23"}, rrdb...), ends...)...)
	}
	const rrdbNet = `^(conv_first|conv_body|conv_hr|conv_last|conv_up[12]|body\.\d+\.rdb[123]\.conv[1-5])\.(weight|bias)$`
	vision := repeat(32, "v.blk.%d.ln1.weight", "v.blk.%d.ln2.weight", "v.blk.%d.attn_q.weight", "v.blk.%d.attn_q.bias", "v.blk.%d.attn_k.weight", "v.blk.%d.attn_k.bias",
		"v.blk.%d.attn_v.weight", "v.blk.%d.attn_v.bias", "v.blk.%d.attn_out.weight", "v.blk.%d.attn_out.bias", "v.blk.%d.ffn_gate.weight", "v.blk.%d.ffn_gate.bias",
		"v.blk.%d.ffn_up.weight", "v.blk.%d.ffn_up.bias", "v.blk.%d.ffn_down.weight", "v.blk.%d.ffn_down.bias")
	vision = append(vision, "v.patch_embd.weight", "v.patch_embd.weight.1", "v.post_ln.weight", "mm.0.weight", "mm.0.bias", "mm.2.weight", "mm.2.bias")
	return []list{
		{"Qwen2.5-VL 7B, llama.cpp", rename.QwenImage, llamaText(28, "blk.%d.attn_q.bias", "blk.%d.attn_k.bias", "blk.%d.attn_v.bias"), decoder},
		{"Qwen3 4B, llama.cpp", rename.ZImage, llamaText(36, "blk.%d.attn_q_norm.weight", "blk.%d.attn_k_norm.weight"), decoder},
		{"Mistral 24B, llama.cpp", rename.Flux2, llamaText(40), decoder},
		{"Gemma 2 2B, llama.cpp", rename.Lumina2, llamaText(26, "blk.%d.attn_post_norm.weight", "blk.%d.ffn_post_norm.weight"), decoder},
		{"Gemma 2 2B, newer llama.cpp", rename.Lumina2, llamaText(26, "blk.%d.post_attention_norm.weight", "blk.%d.post_ffw_norm.weight"), decoder},
		{"Qwen2.5-VL vision, llama.cpp", rename.QwenImage, under("text_encoders.llm.visual.", vision),
			`^text_encoders\.llm\.visual\.(merger\.(ln_q|mlp\.[02])|patch_embed\.proj\.[01]|blocks\.\d+\.(norm[12]|attn\.([qkv]_proj|proj)|mlp\.(gate|up|down)_proj))\.(weight|bias)$`},
		{"IP-Adapter SD 1.5", rename.SD1, attention(16), `^(model\.diffusion_model\.(input|output|middle)_blocks?\.(\d+\.)?1\.transformer_blocks\.0\.attn2\.to_[kv]_ip\.weight|ip_adapter\.image_proj\.(proj|norm)\.(weight|bias))$`},
		{"IP-Adapter SDXL", rename.SDXL, attention(70), `^(model\.diffusion_model\.(input|output|middle)_blocks?\.(\d+\.)?1\.transformer_blocks\.\d\.attn2\.to_[kv]_ip\.weight|ip_adapter\.image_proj\.(proj|norm)\.(weight|bias))$`},
		{"PhotoMaker 2", rename.SDXL, append(under("pmid.qformer_perceiver.", append(
			repeat(4, "perceiver_resampler.layers.%d.1.0.weight", "perceiver_resampler.layers.%d.1.0.bias", "perceiver_resampler.layers.%d.1.1.weight", "perceiver_resampler.layers.%d.1.3.weight"),
			both("token_proj.0", "token_proj.2", "token_norm")...)), "pmid.vision_model.visual_projection.weight"),
			`^pmid\.(visual_projection\.weight|qformer_perceiver\.(token_norm|token_proj\.fc[12]|perceiver_resampler\.layers\.\d\.1\.(0|1\.fc[12]))\.(weight|bias))$`},
		{"ESRGAN x4", rename.ESRGAN, esrgan("model.3", "model.6", "model.8", "model.10"), rrdbNet},
		{"ESRGAN x2", rename.ESRGAN, esrgan("model.3", "model.5", "model.7"), rrdbNet},
		{"ESRGAN x1", rename.ESRGAN, esrgan("model.2", "model.4"), rrdbNet},
	}
}

// Every name is mapped, no two become one, and renaming again changes nothing.
func TestRegularNameListsAreMapped(t *testing.T) {
	for _, l := range lists() {
		t.Run(l.name, func(t *testing.T) {
			pattern := regexp.MustCompile(l.want)
			in := make([]tensor.Tensor, len(l.names))
			for i, name := range l.names {
				info := tensor.Info{Name: name, DType: tensor.F16, Shape: []int64{4}}
				in[i] = tensor.Tensor{Info: info, Source: hollow(info)}
			}
			r, err := rename.Apply(l.family, in)
			require.NoError(t, err, "a collision is an error")
			require.Len(t, r.Tensors, len(in))
			for _, x := range r.Tensors {
				require.Regexp(t, pattern, x.Name, "from %s", in[x.From[0]].Name)
				require.Equal(t, x.Name, l.family.Rename(x.Name))
			}
		})
	}
}

package rename_test

import (
	"bufio"
	"compress/gzip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// model is a complete list of names and shapes (testdata/make_names.py).
type model struct {
	family, part string
	infos        []tensor.Info
}

func models(t *testing.T) []model {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "names.txt.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var all []model
	for lines := bufio.NewScanner(z); lines.Scan(); {
		if title, ok := strings.CutPrefix(lines.Text(), "# "); ok {
			family, part, _ := strings.Cut(title, "/")
			all = append(all, model{family: family, part: part})
			continue
		}
		name, dims, _ := strings.Cut(lines.Text(), " ")
		info := tensor.Info{Name: name, DType: tensor.BF16}
		for d := range strings.SplitSeq(dims, ",") {
			if d == "" {
				continue
			}
			n, err := strconv.ParseInt(d, 10, 64)
			require.NoError(t, err)
			info.Shape = append(info.Shape, n)
		}
		last := &all[len(all)-1]
		last.infos = append(last.infos, info)
	}
	return all
}

// prefixes are what opening a diffusers folder puts before a component's names.
var prefixes = map[string]string{
	"unet": "unet.", "transformer": "transformer.", "medium": "transformer.", "i2v": "transformer.",
	"vae": "vae.", "text_encoder": "te.", "text_encoder_2": "te2.",
	"open_clip": "cond_stage_model.model.", "open_clip_g": "conditioner.embedders.1.model.", "t5_gguf": "text_encoders.t5xxl.transformer.", "controlnet": "",
}

const foreign = "unknown" // the family of lists that belong to none

const (
	ldmUNet  = `^model\.diffusion_model\.(time_embed\.[02]|label_emb\.0\.[02]|input_blocks\.\d+\.[012](\.(op|in_layers|out_layers|emb_layers|skip_connection|norm|proj_in|proj_out|transformer_blocks)\b|\.(weight|bias)$)|middle_block\.[012]\.(in_layers|out_layers|emb_layers|skip_connection|norm|proj_in|proj_out|transformer_blocks)|output_blocks\.\d+\.[012]\.(conv|in_layers|out_layers|emb_layers|skip_connection|norm|proj_in|proj_out|transformer_blocks)|out\.[02])\b`
	ldmVAE   = `^first_stage_model\.((encoder|decoder)\.(conv_in|conv_out|norm_out|mid\.(block_[12]\.(norm[12]|conv[12])|attn_1\.(norm|q|k|v|proj_out))|(down|up)\.[0-3]\.(block\.[0-2]\.(norm[12]|conv[12]|nin_shortcut)|(down|up)sample\.conv))|quant_conv|post_quant_conv)\.(weight|bias)$`
	wanVAE   = `^first_stage_model\.(conv[12]\.|(encoder|decoder)\.(conv1|head\.[02]|middle\.[012]|(down|up)samples\.\d+\.(residual\.[0236]|shortcut|resample|time_conv))\b)`
	wanVAE22 = `^first_stage_model\.(conv[12]\.(weight|bias)$|(encoder|decoder)\.(conv1\.(weight|bias)$|head\.(0\.gamma|2\.(weight|bias))$|middle\.[02]\.residual\.([03]\.gamma|[26]\.(weight|bias))$|middle\.1\.(norm\.gamma|(to_qkv|proj)\.(weight|bias))$)|(encoder\.down|decoder\.up)samples\.[0-3]\.(down|up)samples\.[0-3]\.(residual\.([03]\.gamma|[26]\.(weight|bias))|shortcut\.(weight|bias)|(resample\.1|time_conv)\.(weight|bias))$)`
	krea2    = `^model\.diffusion_model\.((first|tmlp\.[02]|tproj\.1|txtmlp\.[13]|last\.linear|txtfusion\.projector)\.(weight|bias)$|txtmlp\.0\.scale$|last\.norm\.scale$|last\.modulation\.lin$|blocks\.\d+\.mod\.lin$|(txtfusion\.(layerwise|refiner)_)?blocks\.\d+\.(attn\.(w[qkvo]|gate)\.weight|attn\.qknorm\.[qk]norm\.scale|mlp\.(gate|up|down)\.weight|(pre|post)norm\.scale)$)`
	flux     = `^model\.diffusion_model\.((img_in|txt_in)\.|(time_in|vector_in|guidance_in)\.(in|out)_layer\.|double_blocks\.\d+\.(img|txt)_(mod\.lin|attn\.(qkv|proj|norm\.(query|key)_norm)|mlp\.[02])\.|single_blocks\.\d+\.(linear[12]|modulation\.lin|norm\.(query|key)_norm)\.|final_layer\.(linear|adaLN_modulation\.1)\.`
	lumina   = `^model\.diffusion_model\.(x_embedder\.|[txc]\w*_embedder\.|(x|cap)_pad_token$|(noise_refiner|context_refiner|layers)\.\d+\.(attention\.(qkv|out|[qk]_norm)|attention_norm[12]|ffn_norm[12]|feed_forward\.w[123]|adaLN_modulation\.[01])\.|norm_final\.|final_layer\.)`
)

// layouts say what every name of the original layout looks like.
var layouts = map[string]string{
	"sd1/unet": ldmUNet, "sd2/unet": ldmUNet, "sdxl/unet": ldmUNet, "sdxl-refiner/unet": ldmUNet,
	"sd1/vae": ldmVAE, "flux/vae": ldmVAE, "wan2/vae": wanVAE, "qwen-image/vae": wanVAE,
	"sd1/text_encoder":        `^cond_stage_model\.transformer\.text_model\.(embeddings|encoder\.layers\.\d+|final_layer_norm)\.`,
	"sdxl/text_encoder_2":     `^cond_stage_model\.1\.transformer\.text_model\.(embeddings\.|encoder\.layers\.\d+\.|final_layer_norm\.|text_projection$)`,
	"flux/text_encoder_2":     `^text_encoders\.t5xxl\.transformer\.(shared|encoder)\.`,
	"flux/transformer":        flux + `)`,
	"flux-fill/transformer":   flux + `)`,
	"longcat/transformer":     flux + `)`,
	"flux2-klein/transformer": flux + `|(double_stream_modulation_(img|txt)|single_stream_modulation)\.lin\.)`,
	"krea2/transformer":       krea2,
	"sd2/open_clip":           `^cond_stage_model\.transformer\.text_model\.(embeddings\.(token|position)_embedding\.weight$|text_projection$|final_layer_norm\.|encoder\.layers\.\d+\.(self_attn\.(in|out)_proj|layer_norm[12]|mlp\.fc[12])\.)`,
	"sdxl/open_clip_g":        `^cond_stage_model\.1\.transformer\.text_model\.(embeddings\.(token|position)_embedding\.weight$|text_projection$|final_layer_norm\.|encoder\.layers\.\d+\.(self_attn\.(in|out)_proj|layer_norm[12]|mlp\.fc[12])\.)`,
	"flux/t5_gguf":            `^text_encoders\.t5xxl\.transformer\.(shared\.weight$|encoder\.(final_layer_norm\.weight$|block\.\d+\.layer\.(0\.(SelfAttention\.(q|k|v|o|relative_attention_bias)|layer_norm)|1\.(DenseReluDense\.w(i_0|i_1|o)|layer_norm))\.weight$))`,
	"sdxl/controlnet":         `^(time_embed|label_emb|input_blocks|middle_block|input_hint_block|zero_convs|middle_block_out)\.`,
	"sefi-image/transformer":  flux + `|(double_stream_modulation_(img|txt)|single_stream_modulation)\.lin\.|dual_time_embed\.)`,
	"ideogram4/transformer":   `^model\.diffusion_model\.(adaln_proj|embed_image_indicator|final_layer|input_proj|layers|llm_cond_norm|llm_cond_proj|t_embedding)\.`,
	"wan2.2-ti2v/vae":         wanVAE22,
	"flux2/transformer":       flux + `|(double_stream_modulation_(img|txt)|single_stream_modulation)\.lin\.)`,
	"chroma/transformer":      flux + `|distilled_guidance_layer\.)`,
	"sd3/transformer":         `^model\.diffusion_model\.(pos_embed$|x_embedder\.proj\.|context_embedder\.|[ty]_embedder\.mlp\.[02]\.|joint_blocks\.\d+\.(x|context)_block\.(adaLN_modulation\.1|attn2?\.(qkv|proj|ln_[qk])|mlp\.fc[12])\.|final_layer\.(linear|adaLN_modulation\.1)\.)`,
	"qwen-image/transformer":  `^model\.diffusion_model\.(img_in|txt_in|txt_norm|time_text_embed|transformer_blocks|norm_out|proj_out)\.`,
	"wan2/transformer":        `^model\.diffusion_model\.(patch_embedding\.|(text|time)_embedding\.[02]\.|time_projection\.1\.|head\.(modulation$|head\.)|img_emb\.(emb_pos$|proj\.[0134]\.)|blocks\.\d+\.(modulation$|norm3\.|ffn\.[02]\.|(self|cross)_attn\.(q|k|v|o|norm_q|norm_k|k_img|v_img|norm_k_img)\.))`,
	"z-image/transformer":     lumina,
	"lumina2/transformer":     lumina,
	"ltxv/transformer":        `^model\.diffusion_model\.(patchify_proj\.|adaln_single\.(linear|emb\.timestep_embedder\.linear_[12])\.|caption_projection\.|scale_shift_table$|proj_out\.|transformer_blocks\.\d+\.(scale_shift_table$|ff\.|attn[12]\.(to_[qkv]|to_out\.0|[qk]_norm)\.))`,
}

// Every name of every model is mapped, none is lost, no two become one.
func TestCompleteNameListsAreMapped(t *testing.T) {
	list := models(t)
	require.Len(t, list, 43)
	for _, m := range list {
		if m.family == foreign {
			continue
		}
		t.Run(m.family+"/"+m.part, func(t *testing.T) {
			layout := layouts[m.family+"/"+m.part]
			switch {
			case m.part == "medium" || m.part == "i2v":
				layout = layouts[m.family+"/transformer"]
			case layout == "" && strings.HasPrefix(m.family, "wan2"):
				layout = layouts["wan2/transformer"]
			}
			require.NotEmpty(t, layout)
			pattern := regexp.MustCompile(layout)
			family, err := rename.ParseFamily(m.family)
			require.NoError(t, err)
			in := make([]tensor.Tensor, len(m.infos))
			for i, info := range m.infos {
				info.Name = prefixes[m.part] + info.Name
				in[i] = tensor.Tensor{Info: info, Source: hollow(info)}
			}
			r, err := rename.Apply(family, in)
			require.NoError(t, err)
			require.Empty(t, r.Incomplete)
			used := make(map[int]bool)
			elements := int64(0)
			for _, x := range r.Tensors {
				require.Regexp(t, pattern, x.Name, "from %s", in[x.From[0]].Name)
				n, err := x.Elements()
				require.NoError(t, err)
				elements += n
				for _, i := range x.From {
					require.False(t, used[i], in[i].Name)
					used[i] = true
				}
				// Renaming what is renamed changes nothing.
				require.Equal(t, x.Name, family.Rename(x.Name))
			}
			require.Len(t, used, len(in))
			for _, x := range in {
				n, err := x.Elements()
				require.NoError(t, err)
				elements -= n
			}
			require.Zero(t, elements)
		})
	}
}

// hollow is a Source of the right size without data.
type hollowSource int64

func (h hollowSource) Size() int64                       { return int64(h) }
func (h hollowSource) ReadAt([]byte, int64) (int, error) { return 0, os.ErrInvalid }

func hollow(info tensor.Info) tensor.Source {
	n, err := info.Bytes()
	if err != nil {
		panic(err)
	}
	return hollowSource(n)
}

// The family is told from the diffusers layout and from the original one.
func TestFamiliesOfCompleteModels(t *testing.T) {
	for _, m := range models(t) {
		switch m.part {
		case "unet", "transformer", "medium", "i2v":
		default:
			continue
		}
		t.Run(m.family+"/"+m.part, func(t *testing.T) {
			family, err := rename.ParseFamily(m.family)
			require.NoError(t, err)
			if m.part == "i2v" { // image conditioning of Wan 2.1: not the 2.2 model, which has no image encoder
				require.Equal(t, rename.Wan2, family)
			}
			bare := rename.Detect(m.infos)
			require.Equal(t, family, bare.Family, "evidence %v", bare.Evidence)
			in := make([]tensor.Tensor, len(m.infos))
			for i, info := range m.infos {
				info.Name = prefixes[m.part] + info.Name
				in[i] = tensor.Tensor{Info: info, Source: hollow(info)}
			}
			r, err := rename.Apply(family, in)
			require.NoError(t, err)
			renamed := make([]tensor.Info, len(r.Tensors))
			for i, x := range r.Tensors {
				renamed[i] = x.Info
			}
			original := rename.Detect(renamed)
			require.Equal(t, family, original.Family, "evidence %v", original.Evidence)
			require.False(t, original.Diffusers)
		})
	}
}

// Models that share blocks with a family must not be renamed as if they were it.
func TestModelsThatOnlyLookAlikeAreUnknown(t *testing.T) {
	seen := 0
	for _, m := range models(t) {
		if m.family != foreign {
			continue
		}
		seen++
		f := rename.Detect(m.infos)
		require.Equal(t, rename.Unknown, f.Family, "%s: evidence %v", m.part, f.Evidence)
		require.Empty(t, f.Evidence)
	}
	require.Equal(t, 8, seen)
}

package rename

import "fmt"

// vaeNames says which table the names of a family's VAE follow.
type vaeNames uint8

const (
	vaeLDM   vaeNames = iota // AutoencoderKL
	vaeWan                   // Wan's causal 3-D autoencoder
	vaeWan22                 // that of Wan 2.2 TI2V
	vaeKeep                  // no second spelling known
)

var vaeTables = [...]*table{vaeLDM: &autoencoderKL, vaeWan: &wanVAE, vaeWan22: &wanVAE22, vaeKeep: {}}

func (v vaeNames) table() *table { return vaeTables[v] }

// autoencoderKL is diffusers' AutoencoderKL against the LDM layout. Whether the
// attention weights are linear or 1x1 convolutions is left to the runtime.
var autoencoderKL = stagesTable(
	stage{prefix: pairs{
		{"decoder.post_quant_conv.", "post_quant_conv."},
		{"encoder.quant_conv.", "quant_conv."},
	}},
	stage{substr: pairs{
		{"conv_shortcut", "nin_shortcut"},
		{"conv_norm_out", "norm_out"},
		{"mid_block.attentions.0.", "mid.attn_1."},
	}},
	stage{substr: autoencoderKLBlocks()},
	stage{given: "attentions", substr: pairs{
		{"group_norm.", "norm."},
		{"query.", "q."},
		{"key.", "k."},
		{"value.", "v."},
		{"proj_attn.", "proj_out."},
	}},
	stage{now: "mid.attn_1.", substr: pairs{
		{"to_q", "q"},
		{"to_k", "k"},
		{"to_v", "v"},
		{"to_out.0", "proj_out"},
	}},
)

func autoencoderKLBlocks() pairs {
	var p pairs
	for i := range 4 {
		for j := range 2 {
			p = append(p, pair{fmt.Sprintf("encoder.down_blocks.%d.resnets.%d.", i, j), fmt.Sprintf("encoder.down.%d.block.%d.", i, j)})
		}
		if i < 3 {
			p = append(p,
				pair{fmt.Sprintf("down_blocks.%d.downsamplers.0.", i), fmt.Sprintf("down.%d.downsample.", i)},
				pair{fmt.Sprintf("up_blocks.%d.upsamplers.0.", i), fmt.Sprintf("up.%d.upsample.", 3-i)},
			)
		}
		for j := range 3 {
			p = append(p, pair{fmt.Sprintf("decoder.up_blocks.%d.resnets.%d.", i, j), fmt.Sprintf("decoder.up.%d.block.%d.", 3-i, j)})
		}
	}
	for i := range 2 {
		p = append(p, pair{fmt.Sprintf("mid_block.resnets.%d.", i), fmt.Sprintf("mid.block_%d.", i+1)})
	}
	return p
}

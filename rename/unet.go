package rename

import "fmt"

// The UNets of SD 1.x, 2.x and XL: diffusers' UNet2DConditionModel against the
// LDM layout. The insides of the transformer blocks are the same in both.
var (
	unetSD      = stagesTable(unetStages(unetSize{downs: 4, upsPerLevel: 3, firstAttention: 0, downAttentions: 3, upAttentions: 4}, false)...)
	unetSDXL    = stagesTable(unetStages(unetSize{downs: 3, upsPerLevel: 4, firstAttention: 1, downAttentions: 3, upAttentions: 2}, true)...)
	unetRefiner = stagesTable(unetStages(unetSize{downs: 4, upsPerLevel: 3, firstAttention: 0, downAttentions: 3, upAttentions: 4}, true)...)
)

// unetSize says how many levels a UNet table writes out and which of them have
// attention.
type unetSize struct {
	downs          int // levels
	upsPerLevel    int // resnets of an up level that are looked for
	firstAttention int // first down level with attention
	downAttentions int // end of the down levels with attention
	upAttentions   int // end of the up levels with attention
}

var unetResnet = pairs{
	{"norm1", "in_layers.0"},
	{"conv1", "in_layers.2"},
	{"norm2", "out_layers.0"},
	{"conv2", "out_layers.3"},
	{"time_emb_proj", "emb_layers.1"},
	{"conv_shortcut", "skip_connection"},
}

func unetStages(size unetSize, labelEmbedding bool) []stage {
	exact := pairs{}
	both := func(from, to string) {
		exact = append(exact, pair{from + ".weight", to + ".weight"}, pair{from + ".bias", to + ".bias"})
	}
	both("time_embedding.linear_1", "time_embed.0")
	both("time_embedding.linear_2", "time_embed.2")
	both("conv_in", "input_blocks.0.0")
	both("conv_norm_out", "out.0")
	both("conv_out", "out.2")
	if labelEmbedding {
		both("add_embedding.linear_1", "label_emb.0.0")
		both("add_embedding.linear_2", "label_emb.0.2")
	}
	layers := unetLayers(size)
	if size.downs == 3 {
		layers = append(layers, pair{"output_blocks.2.1.conv.", "output_blocks.2.2.conv."})
	}
	layers = append(layers,
		pair{"mid_block.attentions.0.", "middle_block.1."},
		pair{"mid_block.resnets.0.", "middle_block.0."},
		pair{"mid_block.resnets.1.", "middle_block.2."},
	)
	return []stage{
		{exact: exact, stop: true},
		{now: "resnets", substr: unetResnet},
		{substr: layers},
		{substr: pairs{{"to_out.weight", "to_out.0.weight"}, {"to_out.bias", "to_out.0.bias"}}},
	}
}

// unetLayers numbers the blocks: an LDM UNet counts every resnet and every
// down- or upsampler in one list, three to a level.
func unetLayers(size unetSize) pairs {
	var layers pairs
	for i := range size.downs {
		for j := range 2 {
			block := 3*i + j + 1
			layers = append(layers, pair{fmt.Sprintf("down_blocks.%d.resnets.%d.", i, j), fmt.Sprintf("input_blocks.%d.0.", block)})
			if i >= size.firstAttention && i < size.downAttentions {
				layers = append(layers, pair{fmt.Sprintf("down_blocks.%d.attentions.%d.", i, j), fmt.Sprintf("input_blocks.%d.1.", block)})
			}
		}
		for j := range size.upsPerLevel {
			block := 3*i + j
			layers = append(layers, pair{fmt.Sprintf("up_blocks.%d.resnets.%d.", i, j), fmt.Sprintf("output_blocks.%d.0.", block)})
			if i < size.upAttentions {
				layers = append(layers, pair{fmt.Sprintf("up_blocks.%d.attentions.%d.", i, j), fmt.Sprintf("output_blocks.%d.1.", block)})
			}
		}
		if i < 3 {
			slot := 2
			if i == 0 {
				slot = 1
			}
			layers = append(layers,
				pair{fmt.Sprintf("down_blocks.%d.downsamplers.0.conv.", i), fmt.Sprintf("input_blocks.%d.0.op.", 3*(i+1))},
				pair{fmt.Sprintf("up_blocks.%d.upsamplers.0.", i), fmt.Sprintf("output_blocks.%d.%d.", 3*i+2, slot)},
			)
		}
	}
	return layers
}

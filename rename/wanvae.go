package rename

import (
	"fmt"
	"slices"
)

// wanVAE is diffusers' AutoencoderKLWan (also Qwen-Image's) against the
// original layout, which counts the blocks of all levels in one list.
var wanVAE = stagesTable(
	stage{substr: pairs{
		{".conv_in.", ".conv1."},
		{".norm_out.", ".head.0."},
		{".conv_out.", ".head.2."},
		{".mid_block.attentions.0.", ".middle.1."},
		{".mid_block.resnets.0.", ".middle.0.residual."},
		{".mid_block.resnets.1.", ".middle.2.residual."},
	}},
	stage{prefix: wanVAEBlocks()},
	stage{now: ".residual.", substr: pairs{
		{".norm1.", ".0."},
		{".conv1.", ".2."},
		{".norm2.", ".3."},
		{".conv2.", ".6."},
	}},
)

func wanVAEBlocks() pairs {
	p := pairs{{"quant_conv.", "conv1."}, {"post_quant_conv.", "conv2."}}
	for b := range 4 {
		if b == 1 {
			p = append(p, pair{"decoder.up_blocks.1.resnets.0.conv_shortcut.", "decoder.upsamples.4.shortcut."})
		}
		for r := range 3 {
			p = append(p, pair{fmt.Sprintf("decoder.up_blocks.%d.resnets.%d.", b, r), fmt.Sprintf("decoder.upsamples.%d.residual.", 4*b+r)})
		}
		if b < 3 {
			p = append(p, pair{fmt.Sprintf("decoder.up_blocks.%d.upsamplers.0.", b), fmt.Sprintf("decoder.upsamples.%d.", 4*b+3)})
		}
	}
	for n := range 11 {
		from, to := fmt.Sprintf("encoder.down_blocks.%d.", n), fmt.Sprintf("encoder.downsamples.%d.", n)
		if n == 3 || n == 6 {
			p = append(p, pair{from + "conv_shortcut.", to + "shortcut."})
		}
		if !slices.Contains([]int{2, 5, 8}, n) {
			to += "residual."
		}
		p = append(p, pair{from, to})
	}
	return p
}

// wanVAE22 is the autoencoder of Wan 2.2 TI2V, whose levels are kept together in
// both layouts. A level ends in a resampler, counted after its two (encoder) or
// three (decoder) residual blocks. stable-diffusion.cpp has no such table.
var wanVAE22 = table{
	compat: wanVAE.compat,
	stages: []stage{
		wanVAE.stages[0],
		{prefix: wanVAE22Blocks()},
		wanVAE.stages[2],
	},
}

func wanVAE22Blocks() pairs {
	p := pairs{{"quant_conv.", "conv1."}, {"post_quant_conv.", "conv2."}}
	for _, half := range []struct {
		from, to, sampler string
		blocks            int
	}{
		{"encoder.down_blocks.%d.", "encoder.downsamples.%[1]d.downsamples.", "downsampler.", 2},
		{"decoder.up_blocks.%d.", "decoder.upsamples.%[1]d.upsamples.", "upsampler.", 3},
	} {
		for level := range 4 {
			from, to := fmt.Sprintf(half.from, level), fmt.Sprintf(half.to, level)
			for r := range half.blocks {
				p = append(p,
					pair{fmt.Sprintf("%sresnets.%d.conv_shortcut.", from, r), fmt.Sprintf("%s%d.shortcut.", to, r)},
					pair{fmt.Sprintf("%sresnets.%d.", from, r), fmt.Sprintf("%s%d.residual.", to, r)})
			}
			p = append(p, pair{from + half.sampler, fmt.Sprintf("%s%d.", to, half.blocks)})
		}
	}
	return p
}

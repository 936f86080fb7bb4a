package rename

// ditKrea2 is diffusers' Krea 2 transformer against the original layout. What
// stable-diffusion.cpp's table leaves out (norms, modulation) is in the rules.
// Facts: diffusers src/diffusers/loaders/single_file_utils.py 0.42.1, which also
// gives the six modulation vectors of a block, one vector in the original, an axis.
var ditKrea2 = stagesTable(
	stage{prefix: pairs{
		{"img_in.", "first."},
		{"time_embed.linear_1.", "tmlp.0."},
		{"time_embed.linear_2.", "tmlp.2."},
		{"time_mod_proj.", "tproj.1."},
		{"txt_in.linear_1.", "txtmlp.1."},
		{"txt_in.linear_2.", "txtmlp.3."},
		{"text_fusion.", "txtfusion."},
		{"transformer_blocks.", "blocks."},
		{"final_layer.", "last."},
	}},
	stage{substr: pairs{
		{"attn.to_out.0.", "attn.wo."},
		{"attn.to_out.", "attn.wo."},
		{"attn.to_gate.", "attn.gate."},
		{"attn.to_q.", "attn.wq."},
		{"attn.to_k.", "attn.wk."},
		{"attn.to_v.", "attn.wv."},
		{"ff.gate.", "mlp.gate."},
		{"ff.up.", "mlp.up."},
		{"ff.down.", "mlp.down."},
		{"txt_in.norm.", "txtmlp.0."},
		{"last.norm.weight", "last.norm.scale"},
		{"last.modulation.weight", "last.modulation.lin"},
	}},
).first(ours(
	move("txt_in.norm.weight", "txtmlp.0.scale"),
	move("final_layer.scale_shift_table", "last.modulation.lin"),
	flatten("transformer_blocks.{i}.scale_shift_table", "blocks.{i}.mod.lin"),
	krea2Norms("transformer_blocks", "blocks"),
	krea2Norms("text_fusion.layerwise_blocks", "txtfusion.layerwise_blocks"),
	krea2Norms("text_fusion.refiner_blocks", "txtfusion.refiner_blocks"),
))

func krea2Norms(from, to string) []rule {
	from, to = from+".{i}.", to+".{i}."
	return ruleList(
		move(from+"attn.norm_q.weight", to+"attn.qknorm.qnorm.scale"),
		move(from+"attn.norm_k.weight", to+"attn.qknorm.knorm.scale"),
		move(from+"norm1.weight", to+"prenorm.scale"),
		move(from+"norm2.weight", to+"postnorm.scale"),
	)
}

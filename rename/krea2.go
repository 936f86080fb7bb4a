package rename

// ditKrea2 is diffusers' Krea 2 transformer against the original layout.
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
)

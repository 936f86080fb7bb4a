package rename

// ditSD3 is diffusers' SD3Transformer2DModel against the original MMDiT. Facts
// on structure: diffusers scripts/convert_sd3_to_diffusers.py at 58eb52c. The
// last block has no context output, and there norm1_context holds (scale,
// shift) where the original has (shift, scale), like norm_out.
var ditSD3 = newTable(
	map[string]int{"transformer_blocks": 38},
	ruleList(
		move("time_text_embed.timestep_embedder.linear_1.{s}", "t_embedder.mlp.0.{s}"),
		move("time_text_embed.timestep_embedder.linear_2.{s}", "t_embedder.mlp.2.{s}"),
		move("time_text_embed.text_embedder.linear_1.{s}", "y_embedder.mlp.0.{s}"),
		move("time_text_embed.text_embedder.linear_2.{s}", "y_embedder.mlp.2.{s}"),
		move("pos_embed.pos_embed", "pos_embed"),
		move("pos_embed.proj.{s}", "x_embedder.proj.{s}"),

		move("transformer_blocks.{i}.norm1.linear.{s}", "joint_blocks.{i}.x_block.adaLN_modulation.1.{s}"),
		flipUnless("transformer_blocks.{i}.norm1_context.linear.{s}", "joint_blocks.{i}.context_block.adaLN_modulation.1.{s}",
			"transformer_blocks.{i}.attn.to_add_out.weight"),
		sd3Attention("attn"),
		sd3Attention("attn2"),
		move("transformer_blocks.{i}.attn.norm_added_q.weight", "joint_blocks.{i}.context_block.attn.ln_q.weight"),
		move("transformer_blocks.{i}.attn.norm_added_k.weight", "joint_blocks.{i}.context_block.attn.ln_k.weight"),
		move("transformer_blocks.{i}.ff.net.0.proj.{s}", "joint_blocks.{i}.x_block.mlp.fc1.{s}"),
		move("transformer_blocks.{i}.ff.net.2.{s}", "joint_blocks.{i}.x_block.mlp.fc2.{s}"),
		move("transformer_blocks.{i}.ff_context.net.0.proj.{s}", "joint_blocks.{i}.context_block.mlp.fc1.{s}"),
		move("transformer_blocks.{i}.ff_context.net.2.{s}", "joint_blocks.{i}.context_block.mlp.fc2.{s}"),

		move("proj_out.{s}", "final_layer.linear.{s}"),
		flip("norm_out.linear.{s}", "final_layer.adaLN_modulation.1.{s}"),
	),
)

// sd3Attention returns the rules of one attention of a block: "attn", or
// "attn2" in the blocks with dual attention of SD3.5 medium.
func sd3Attention(name string) []rule {
	from, x, context := "transformer_blocks.{i}."+name+".", "joint_blocks.{i}.x_block."+name+".", "joint_blocks.{i}.context_block."+name+"."
	return ruleList(
		fuse(x+"qkv.{s}", from+"to_q.{s}", from+"to_k.{s}", from+"to_v.{s}"),
		fuse(context+"qkv.{s}", from+"add_q_proj.{s}", from+"add_k_proj.{s}", from+"add_v_proj.{s}"),
		move(from+"norm_q.weight", x+"ln_q.weight"),
		move(from+"norm_k.weight", x+"ln_k.weight"),
		move(from+"to_out.0.{s}", x+"proj.{s}"),
		move(from+"to_add_out.{s}", context+"proj.{s}"),
	)
}

package rename

// ditLumina2 is diffusers' Lumina2Transformer2DModel against the original
// layout. Facts: diffusers src/diffusers/loaders/single_file_utils.py at
// 58eb52c. Keys and values have fewer heads than queries, so the parts of qkv
// differ in rows.
var ditLumina2 = newTable(nil, ours(
	move("time_caption_embed.caption_embedder.0.{s}", "cap_embedder.0.{s}"),
	move("time_caption_embed.caption_embedder.1.{s}", "cap_embedder.1.{s}"),
	move("time_caption_embed.timestep_embedder.linear_1.{s}", "t_embedder.mlp.0.{s}"),
	move("time_caption_embed.timestep_embedder.linear_2.{s}", "t_embedder.mlp.2.{s}"),
	move("norm_out.linear_1.{s}", "final_layer.adaLN_modulation.1.{s}"),
	move("norm_out.linear_2.{s}", "final_layer.linear.{s}"),
	lumina2Block("noise_refiner"),
	lumina2Block("context_refiner"),
	lumina2Block("layers"),
))

func lumina2Block(stack string) []rule {
	p := stack + ".{i}."
	return ruleList(
		move(p+"norm1.norm.{s}", p+"attention_norm1.{s}"),
		move(p+"norm1.linear.{s}", p+"adaLN_modulation.1.{s}"),
		move(p+"norm1.{s}", p+"attention_norm1.{s}"), // the context refiner is not modulated
		move(p+"norm2.{s}", p+"attention_norm2.{s}"),
		move(p+"attn.norm_q.{s}", p+"attention.q_norm.{s}"),
		move(p+"attn.norm_k.{s}", p+"attention.k_norm.{s}"),
		move(p+"attn.to_out.0.{s}", p+"attention.out.{s}"),
		ragged(fuse(p+"attention.qkv.{s}", p+"attn.to_q.{s}", p+"attn.to_k.{s}", p+"attn.to_v.{s}"), 1),
		move(p+"feed_forward.linear_1.{s}", p+"feed_forward.w1.{s}"),
		move(p+"feed_forward.linear_2.{s}", p+"feed_forward.w2.{s}"),
		move(p+"feed_forward.linear_3.{s}", p+"feed_forward.w3.{s}"),
	)
}

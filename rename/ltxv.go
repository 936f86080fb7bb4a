package rename

// ditLTXV is diffusers' LTXVideoTransformer3DModel against Lightricks' layout.
// Facts: diffusers src/diffusers/loaders/single_file_utils.py at 58eb52c.
var ditLTXV = newTable(nil, ours(
	move("proj_in.{s}", "patchify_proj.{s}"),
	move("time_embed.emb.timestep_embedder.linear_1.{s}", "adaln_single.emb.timestep_embedder.linear_1.{s}"),
	move("time_embed.emb.timestep_embedder.linear_2.{s}", "adaln_single.emb.timestep_embedder.linear_2.{s}"),
	move("time_embed.linear.{s}", "adaln_single.linear.{s}"),
	move("transformer_blocks.{i}.attn1.norm_q.{s}", "transformer_blocks.{i}.attn1.q_norm.{s}"),
	move("transformer_blocks.{i}.attn1.norm_k.{s}", "transformer_blocks.{i}.attn1.k_norm.{s}"),
	move("transformer_blocks.{i}.attn2.norm_q.{s}", "transformer_blocks.{i}.attn2.q_norm.{s}"),
	move("transformer_blocks.{i}.attn2.norm_k.{s}", "transformer_blocks.{i}.attn2.k_norm.{s}"),
))

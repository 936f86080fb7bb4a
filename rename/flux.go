package rename

// ditFlux is diffusers' FluxTransformer2DModel (FLUX.1, Chroma, LongCat, Ovis)
// and Flux2Transformer2DModel against the original FLUX layout. Facts on
// structure: diffusers scripts/convert_flux_to_diffusers.py and
// convert_flux2_to_diffusers.py at 58eb52c, which split qkv and linear1 along
// axis 0 and store (scale, shift) where the original has (shift, scale).
var ditFlux = newTable(
	map[string]int{"transformer_blocks": 19, "single_transformer_blocks": 38, "double_blocks": 19, "single_blocks": 38},
	fluxRules,
)

var fluxRules = ruleList(
	move("time_embed.timestep_embedder.linear_1.{s}", "time_in.in_layer.{s}"),
	move("time_embed.timestep_embedder.linear_2.{s}", "time_in.out_layer.{s}"),
	move("time_text_embed.timestep_embedder.linear_1.{s}", "time_in.in_layer.{s}"),
	move("time_text_embed.timestep_embedder.linear_2.{s}", "time_in.out_layer.{s}"),
	move("time_text_embed.text_embedder.linear_1.{s}", "vector_in.in_layer.{s}"),
	move("time_text_embed.text_embedder.linear_2.{s}", "vector_in.out_layer.{s}"),
	move("time_text_embed.guidance_embedder.linear_1.{s}", "guidance_in.in_layer.{s}"),
	move("time_text_embed.guidance_embedder.linear_2.{s}", "guidance_in.out_layer.{s}"),
	ours(
		move("time_guidance_embed.timestep_embedder.linear_1.{s}", "time_in.in_layer.{s}"),
		move("time_guidance_embed.timestep_embedder.linear_2.{s}", "time_in.out_layer.{s}"),
		move("time_guidance_embed.guidance_embedder.linear_1.{s}", "guidance_in.in_layer.{s}"),
		move("time_guidance_embed.guidance_embedder.linear_2.{s}", "guidance_in.out_layer.{s}"),
		move("double_stream_modulation_img.linear.{s}", "double_stream_modulation_img.lin.{s}"),
		move("double_stream_modulation_txt.linear.{s}", "double_stream_modulation_txt.lin.{s}"),
		move("single_stream_modulation.linear.{s}", "single_stream_modulation.lin.{s}"),
		move("distilled_guidance_layer.layers.{i}.linear_1.{s}", "distilled_guidance_layer.layers.{i}.in_layer.{s}"),
		move("distilled_guidance_layer.layers.{i}.linear_2.{s}", "distilled_guidance_layer.layers.{i}.out_layer.{s}"),
		move("distilled_guidance_layer.norms.{i}.weight", "distilled_guidance_layer.norms.{i}.scale"),
	),
	move("context_embedder.{s}", "txt_in.{s}"),
	move("x_embedder.{s}", "img_in.{s}"),

	move("transformer_blocks.{i}.norm1.linear.{s}", "double_blocks.{i}.img_mod.lin.{s}"),
	move("transformer_blocks.{i}.norm1_context.linear.{s}", "double_blocks.{i}.txt_mod.lin.{s}"),
	fuse("double_blocks.{i}.img_attn.qkv.{s}",
		"transformer_blocks.{i}.attn.to_q.{s}", "transformer_blocks.{i}.attn.to_k.{s}", "transformer_blocks.{i}.attn.to_v.{s}"),
	fuse("double_blocks.{i}.txt_attn.qkv.{s}",
		"transformer_blocks.{i}.attn.add_q_proj.{s}", "transformer_blocks.{i}.attn.add_k_proj.{s}", "transformer_blocks.{i}.attn.add_v_proj.{s}"),
	move("transformer_blocks.{i}.attn.norm_q.weight", "double_blocks.{i}.img_attn.norm.query_norm.scale"),
	move("transformer_blocks.{i}.attn.norm_k.weight", "double_blocks.{i}.img_attn.norm.key_norm.scale"),
	move("transformer_blocks.{i}.attn.norm_added_q.weight", "double_blocks.{i}.txt_attn.norm.query_norm.scale"),
	move("transformer_blocks.{i}.attn.norm_added_k.weight", "double_blocks.{i}.txt_attn.norm.key_norm.scale"),
	move("double_blocks.{i}.img_attn.norm.query_norm.weight", "double_blocks.{i}.img_attn.norm.query_norm.scale"),
	move("double_blocks.{i}.img_attn.norm.key_norm.weight", "double_blocks.{i}.img_attn.norm.key_norm.scale"),
	move("double_blocks.{i}.txt_attn.norm.query_norm.weight", "double_blocks.{i}.txt_attn.norm.query_norm.scale"),
	move("double_blocks.{i}.txt_attn.norm.key_norm.weight", "double_blocks.{i}.txt_attn.norm.key_norm.scale"),
	move("transformer_blocks.{i}.ff.net.0.proj.{s}", "double_blocks.{i}.img_mlp.0.{s}"),
	move("transformer_blocks.{i}.ff.net.2.{s}", "double_blocks.{i}.img_mlp.2.{s}"),
	move("transformer_blocks.{i}.ff_context.net.0.proj.{s}", "double_blocks.{i}.txt_mlp.0.{s}"),
	move("transformer_blocks.{i}.ff_context.net.2.{s}", "double_blocks.{i}.txt_mlp.2.{s}"),
	ours(
		move("transformer_blocks.{i}.ff.linear_in.{s}", "double_blocks.{i}.img_mlp.0.{s}"),
		move("transformer_blocks.{i}.ff.linear_out.{s}", "double_blocks.{i}.img_mlp.2.{s}"),
		move("transformer_blocks.{i}.ff_context.linear_in.{s}", "double_blocks.{i}.txt_mlp.0.{s}"),
		move("transformer_blocks.{i}.ff_context.linear_out.{s}", "double_blocks.{i}.txt_mlp.2.{s}"),
	),
	move("transformer_blocks.{i}.attn.to_out.0.{s}", "double_blocks.{i}.img_attn.proj.{s}"),
	move("transformer_blocks.{i}.attn.to_add_out.{s}", "double_blocks.{i}.txt_attn.proj.{s}"),

	move("single_transformer_blocks.{i}.norm.linear.{s}", "single_blocks.{i}.modulation.lin.{s}"),
	ragged(fuse("single_blocks.{i}.linear1.{s}",
		"single_transformer_blocks.{i}.attn.to_q.{s}", "single_transformer_blocks.{i}.attn.to_k.{s}",
		"single_transformer_blocks.{i}.attn.to_v.{s}", "single_transformer_blocks.{i}.proj_mlp.{s}"), 3),
	ours(
		move("single_transformer_blocks.{i}.attn.to_qkv_mlp_proj.{s}", "single_blocks.{i}.linear1.{s}"),
		move("single_transformer_blocks.{i}.attn.to_out.{s}", "single_blocks.{i}.linear2.{s}"),
	),
	move("single_transformer_blocks.{i}.attn.norm_q.weight", "single_blocks.{i}.norm.query_norm.scale"),
	move("single_transformer_blocks.{i}.attn.norm_k.weight", "single_blocks.{i}.norm.key_norm.scale"),
	move("single_blocks.{i}.norm.query_norm.weight", "single_blocks.{i}.norm.query_norm.scale"),
	move("single_blocks.{i}.norm.key_norm.weight", "single_blocks.{i}.norm.key_norm.scale"),
	move("single_transformer_blocks.{i}.proj_out.{s}", "single_blocks.{i}.linear2.{s}"),

	move("proj_out.{s}", "final_layer.linear.{s}"),
	flip("norm_out.linear.{s}", "final_layer.adaLN_modulation.1.{s}"),
)

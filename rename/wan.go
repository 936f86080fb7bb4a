package rename

// ditWan is diffusers' WanTransformer3DModel (and its VACE variant) against the
// original Wan layout. Facts: diffusers src/diffusers/loaders/single_file_utils.py
// at 58eb52c. Diffusers counts the norms in the order they run, Wan does not:
// norm2 there is norm3 here. stable-diffusion.cpp has no such table.
var ditWan = newTable(nil, ours(
	move("condition_embedder.time_embedder.linear_1.{s}", "time_embedding.0.{s}"),
	move("condition_embedder.time_embedder.linear_2.{s}", "time_embedding.2.{s}"),
	move("condition_embedder.time_proj.{s}", "time_projection.1.{s}"),
	move("condition_embedder.text_embedder.linear_1.{s}", "text_embedding.0.{s}"),
	move("condition_embedder.text_embedder.linear_2.{s}", "text_embedding.2.{s}"),
	move("condition_embedder.image_embedder.norm1.{s}", "img_emb.proj.0.{s}"),
	move("condition_embedder.image_embedder.ff.net.0.proj.{s}", "img_emb.proj.1.{s}"),
	move("condition_embedder.image_embedder.ff.net.2.{s}", "img_emb.proj.3.{s}"),
	move("condition_embedder.image_embedder.norm2.{s}", "img_emb.proj.4.{s}"),
	move("condition_embedder.image_embedder.pos_embed", "img_emb.emb_pos"),
	move("scale_shift_table", "head.modulation"),
	move("proj_out.{s}", "head.head.{s}"),
	wanBlock("blocks"),
	wanBlock("vace_blocks"),
	move("vace_blocks.{i}.proj_in.{s}", "vace_blocks.{i}.before_proj.{s}"),
	move("vace_blocks.{i}.proj_out.{s}", "vace_blocks.{i}.after_proj.{s}"),
))

func wanBlock(stack string) []rule {
	p := stack + ".{i}."
	rules := ruleList(
		move(p+"scale_shift_table", p+"modulation"),
		move(p+"norm2.{s}", p+"norm3.{s}"),
		move(p+"ffn.net.0.proj.{s}", p+"ffn.0.{s}"),
		move(p+"ffn.net.2.{s}", p+"ffn.2.{s}"),
		move(p+"attn2.add_k_proj.{s}", p+"cross_attn.k_img.{s}"),
		move(p+"attn2.add_v_proj.{s}", p+"cross_attn.v_img.{s}"),
		move(p+"attn2.norm_added_k.{s}", p+"cross_attn.norm_k_img.{s}"),
	)
	for _, attn := range []pair{{"attn1.", "self_attn."}, {"attn2.", "cross_attn."}} {
		rules = append(rules, ruleList(
			move(p+attn.from+"to_q.{s}", p+attn.to+"q.{s}"),
			move(p+attn.from+"to_k.{s}", p+attn.to+"k.{s}"),
			move(p+attn.from+"to_v.{s}", p+attn.to+"v.{s}"),
			move(p+attn.from+"to_out.0.{s}", p+attn.to+"o.{s}"),
			move(p+attn.from+"norm_q.{s}", p+attn.to+"norm_q.{s}"),
			move(p+attn.from+"norm_k.{s}", p+attn.to+"norm_k.{s}"),
		)...)
	}
	return rules
}

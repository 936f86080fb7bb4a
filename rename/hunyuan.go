package rename

// ditHunyuan is Tencent's HunyuanVideo layout against the FLUX-like one that
// stable-diffusion.cpp and ComfyUI use. The keys have no suffix, so companions
// of a weight follow it.
var ditHunyuan = newTable(
	map[string]int{"double_blocks": 54},
	ruleList(
		hunyuanStream("img"),
		hunyuanStream("txt"),
		hunyuanEmbedder("time_in"),
		hunyuanEmbedder("time_r_in"),
		hunyuanEmbedder("vector_in"),
		hunyuanEmbedder("guidance_in"),
		move("txt_in.c_embedder.linear_1{*}", "txt_in.c_embedder.in_layer{*}"),
		move("txt_in.c_embedder.linear_2{*}", "txt_in.c_embedder.out_layer{*}"),
		move("txt_in.t_embedder.mlp.0{*}", "txt_in.t_embedder.in_layer{*}"),
		move("txt_in.t_embedder.mlp.2{*}", "txt_in.t_embedder.out_layer{*}"),
	),
	stage{substr: pairs{
		{"_attn_qkv.", "_attn.qkv."},
		{"_attn_proj.", "_attn.proj."},
		{"mlp.fc1.", "mlp.0."},
		{"mlp.fc2.", "mlp.2."},
		{".modulation.linear.", ".modulation.lin."},
	}},
)

func hunyuanStream(s string) []rule {
	p := "double_blocks.{i}." + s + "_"
	return ruleList(
		move(p+"mod.linear{*}", p+"mod.lin{*}"),
		move(p+"attn_qkv{*}", p+"attn.qkv{*}"),
		move(p+"attn_q_norm.weight", p+"attn.norm.query_norm.scale"),
		move(p+"attn_k_norm.weight", p+"attn.norm.key_norm.scale"),
		move(p+"mlp.fc1{*}", p+"mlp.0{*}"),
		move(p+"mlp.fc2{*}", p+"mlp.2{*}"),
		move(p+"attn_proj{*}", p+"attn.proj{*}"),
	)
}

func hunyuanEmbedder(name string) []rule {
	return ruleList(
		move(name+".mlp.0{*}", name+".in_layer{*}"),
		move(name+".mlp.2{*}", name+".out_layer{*}"),
	)
}

package rename

// llmText is llama.cpp's GGUF names of a language model against Hugging Face's.
// llmVision is the same for a Qwen2.5-VL vision tower (mmproj).
var (
	llmText = stagesTable(stage{substr: pairs{
		{"attn_sinks.weight", "self_attn.sinks"},
		{"token_embd.", "model.embed_tokens."},
		{"blk.", "model.layers."},
		{"attn_q.", "self_attn.q_proj."},
		{"attn_k.", "self_attn.k_proj."},
		{"attn_v.", "self_attn.v_proj."},
		{"attn_q_norm.", "self_attn.q_norm."},
		{"attn_k_norm.", "self_attn.k_norm."},
		{"attn_output.", "self_attn.o_proj."},
		{"attn_norm.", "input_layernorm."},
		{"attn_post_norm.", "post_attention_norm."},
		{"ffn_gate_inp.", "mlp.router."},
		{"ffn_gate_exps.", "mlp.experts.gate_proj."},
		{"ffn_up_exps.", "mlp.experts.up_proj."},
		{"ffn_down_exps.", "mlp.experts.down_proj."},
		{"ffn_down.", "mlp.down_proj."},
		{"ffn_gate.", "mlp.gate_proj."},
		{"ffn_up.", "mlp.up_proj."},
		{"ffn_post_norm.", "post_ffw_norm."},
		{"ffn_norm.", "post_attention_layernorm."},
		{"output_norm.", "model.norm."},
	}})

	llmVision = stagesTable(stage{substr: pairs{
		{"mm.", "merger.mlp."},
		{"v.post_ln.", "merger.ln_q."},
		{"v.patch_embd.weight", "patch_embed.proj.0.weight"},
		{"patch_embed.proj.0.weight.1", "patch_embed.proj.1.weight"},
		{"v.patch_embd.weight.1", "patch_embed.proj.1.weight"},
		{"v.blk.", "blocks."},
		{"attn_q.", "attn.q_proj."},
		{"attn_k.", "attn.k_proj."},
		{"attn_v.", "attn.v_proj."},
		{"attn_out.", "attn.proj."},
		{"ffn_down.", "mlp.down_proj."},
		{"ffn_gate.", "mlp.gate_proj."},
		{"ffn_up.", "mlp.up_proj."},
		{"ln1.", "norm1."},
		{"ln2.", "norm2."},
	}})
)

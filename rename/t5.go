package rename

// t5Text is llama.cpp's GGUF names of a T5 encoder against Hugging Face's.
// Hugging Face names pass through.
var t5Text = stagesTable(stage{substr: pairs{
	{"enc.", "encoder."},
	{"blk.", "block."},
	{"output_norm.", "final_layer_norm."},
	{"attn_q.", "layer.0.SelfAttention.q."},
	{"attn_k.", "layer.0.SelfAttention.k."},
	{"attn_v.", "layer.0.SelfAttention.v."},
	{"attn_o.", "layer.0.SelfAttention.o."},
	{"attn_norm.", "layer.0.layer_norm."},
	{"ffn_norm.", "layer.1.layer_norm."},
	{"ffn_up.", "layer.1.DenseReluDense.wi_1."},
	{"ffn_down.", "layer.1.DenseReluDense.wo."},
	{"ffn_gate.", "layer.1.DenseReluDense.wi_0."},
	{"attn_rel_b.", "layer.0.SelfAttention.relative_attention_bias."},
	{"token_embd.", "shared."},
}})

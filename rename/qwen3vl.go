package rename

// Qwen3-VL's vision tower: llama.cpp's mmproj names against Hugging Face's. The
// three deepstack mergers are numbered by the layer they read from, which
// differs between model sizes.
var (
	qwen3VLVision = pairs{
		{"mm.0.", "merger.linear_fc1."},
		{"mm.2.", "merger.linear_fc2."},
		{"v.post_ln.", "merger.norm."},
		{"v.position_embd.weight", "pos_embed.weight"},
		{"v.patch_embd.weight.1", "patch_embed.proj.1.weight"},
		{"v.patch_embd.weight", "patch_embed.proj.0.weight"},
		{"v.patch_embd.bias", "patch_embed.bias"},
		{"v.blk.", "blocks."},
		{"attn_qkv.", "attn.qkv."},
		{"attn_out.", "attn.proj."},
		{"ffn_up.", "mlp.linear_fc1."},
		{"ffn_down.", "mlp.linear_fc2."},
		{"ln1.", "norm1."},
		{"ln2.", "norm2."},
	}

	qwen3VLDeepstackLayers = pairs{
		{"v.deepstack_merger_list.", "deepstack_merger_list."},
		{"v.deepstack.5.", "deepstack_merger_list.0."},
		{"v.deepstack.8.", "deepstack_merger_list.0."},
		{"v.deepstack.11.", "deepstack_merger_list.1."},
		{"v.deepstack.16.", "deepstack_merger_list.1."},
		{"v.deepstack.17.", "deepstack_merger_list.2."},
		{"v.deepstack.24.", "deepstack_merger_list.2."},
	}

	qwen3VLDeepstackFFN = pairs{
		{"ffn_up.", "linear_fc1."},
		{"ffn_down.", "linear_fc2."},
		{"ffn_norm.", "norm."},
	}

	qwen3VLDeepstackFC = pairs{{"fc1.", "linear_fc1."}, {"fc2.", "linear_fc2."}}
)

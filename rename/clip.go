package rename

// clipText is open_clip's text and vision towers (and the misspelt layer norm
// of Hugging Face's CLIP) against the Hugging Face layout. The fused in_proj of
// open_clip keeps its shape and becomes self_attn.in_proj: the runtime takes
// either form. text_projection is renamed only; open_clip stores it transposed.
var clipText = stagesTable(
	stage{exact: pairs{
		{"model.ln_final.bias", "transformer.text_model.final_layer_norm.bias"},
		{"model.ln_final.weight", "transformer.text_model.final_layer_norm.weight"},
		{"model.positional_embedding", "transformer.text_model.embeddings.position_embedding.weight"},
		{"model.token_embedding.weight", "transformer.text_model.embeddings.token_embedding.weight"},
		{"model.text_projection", "transformer.text_model.text_projection"},
		{"model.visual.class_embedding", "transformer.vision_model.embeddings.class_embedding"},
		{"model.visual.conv1.weight", "transformer.vision_model.embeddings.patch_embedding.weight"},
		{"model.visual.positional_embedding", "transformer.vision_model.embeddings.position_embedding.weight"},
		{"model.visual.ln_pre.weight", "transformer.vision_model.pre_layernorm.weight"},
		{"model.visual.ln_pre.bias", "transformer.vision_model.pre_layernorm.bias"},
		{"model.visual.ln_post.weight", "transformer.vision_model.post_layernorm.weight"},
		{"model.visual.ln_post.bias", "transformer.vision_model.post_layernorm.bias"},
		{"model.visual.proj", "transformer.visual_projection.weight"},
		{"transformer.vision_model.pre_layrnorm.weight", "transformer.vision_model.pre_layernorm.weight"},
		{"transformer.vision_model.pre_layrnorm.bias", "transformer.vision_model.pre_layernorm.bias"},
	}},
	stage{blocks: []blockMap{
		{"model.transformer.resblocks.", "transformer.text_model.encoder.layers.", clipBlock},
		{"model.visual.transformer.resblocks.", "transformer.vision_model.encoder.layers.", clipBlock},
	}},
	stage{substr: pairs{
		{"transformer.text_projection.weight", "transformer.text_model.text_projection"},
		{"model.text_projection.weight", "transformer.text_model.text_projection"},
		{"vision_model.visual_projection.weight", "visual_projection.weight"},
	}},
)

var clipBlock = pairs{
	{"attn.in_proj_weight", "self_attn.in_proj.weight"},
	{"attn.in_proj_bias", "self_attn.in_proj.bias"},
	{"attn.out_proj.weight", "self_attn.out_proj.weight"},
	{"attn.out_proj.bias", "self_attn.out_proj.bias"},
	{"ln_1.weight", "layer_norm1.weight"},
	{"ln_1.bias", "layer_norm1.bias"},
	{"ln_2.weight", "layer_norm2.weight"},
	{"ln_2.bias", "layer_norm2.bias"},
	{"mlp.c_fc.weight", "mlp.fc1.weight"},
	{"mlp.c_fc.bias", "mlp.fc1.bias"},
	{"mlp.c_proj.weight", "mlp.fc2.weight"},
	{"mlp.c_proj.bias", "mlp.fc2.bias"},
}

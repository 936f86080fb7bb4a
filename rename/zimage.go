package rename

// ditZImage is diffusers' ZImageTransformer2DModel against the original layout,
// which it shares with Lumina 2. Keys: stable-diffusion.cpp 97d2990; q, k and v
// are split along axis 0 (diffusers src/diffusers/loaders/single_file_utils.py
// at 58eb52c).
var ditZImage = newTable(
	map[string]int{"noise_refiner": 2, "context_refiner": 2, "layers": 30},
	ruleList(
		move("all_x_embedder.2-1.{*}", "x_embedder.{*}"),
		move("all_final_layer.2-1.{*}", "final_layer.{*}"),
		zimageAttention("noise_refiner"),
		zimageAttention("context_refiner"),
		zimageAttention("layers"),
	),
)

func zimageAttention(stack string) []rule {
	p := stack + ".{i}.attention."
	return ruleList(
		move(p+"norm_q.{*}", p+"q_norm.{*}"),
		move(p+"norm_k.{*}", p+"k_norm.{*}"),
		move(p+"to_out.0.{*}", p+"out.{*}"),
		fuse(p+"qkv.{s}", p+"to_q.{s}", p+"to_k.{s}", p+"to_v.{s}"),
	)
}

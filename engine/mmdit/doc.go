// Package mmdit is the diffusion transformer of Stable Diffusion 3, 3.5 medium and
// 3.5 large.
//
// Block diagram (Esser et al. 2024, arXiv:2403.03206; Stability AI's published model
// code for 3.5):
//
//	time → t_embedder, pooled text → y_embedder: c
//	latent in patches of 2×2 → x_embedder, plus learned positions cropped from the middle
//	text → context_embedder
//	joint_blocks: x_block and context_block with weights of their own, one attention over both;
//	    3.5 medium's first x_blocks have a second attention over the image alone; the last
//	    context_block only gives keys and values
//	final_layer: modulated norm, projection to patches
//
// Depth, widths, whether queries and keys are normalised and which blocks have a
// second attention are read off the shapes; heads are 64 wide.
package mmdit

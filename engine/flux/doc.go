// Package flux is the diffusion transformer of FLUX.1 (dev, schnell and what is
// made from them) and of Chroma.
//
// Block diagram (Black Forest Labs' published model code; Esser et al. 2024,
// arXiv:2403.03206):
//
//	time → time_in, guidance → guidance_in (if it is there), pooled text → vector_in: vec
//	latent in patches of 2×2 → img_in; text → txt_in
//	double_blocks: image and text each with weights of their own, one attention over both
//	single_blocks: text and image as one sequence, attention and MLP side by side
//	final_layer: modulated norm, projection to patches
//
// Queries and keys are normalised per head and turned by their positions (text at
// 0, 0, 0; patches at 0, y, x) before attention. Depth, widths and whether there is
// guidance are read off the shapes; heads are 128 wide, split 16, 56, 56 between the
// three axes.
package flux

// Package unet is the denoising network of Stable Diffusion 1.x, 2.x and XL and
// of the distilled networks cut from them (SSD-1B, Vega, tiny SD).
//
// Block diagram (Rombach et al. 2022, arXiv:2112.10752; Podell et al. 2023,
// arXiv:2307.01952):
//
//	time → time_embed, size and pooled text → label_emb: emb
//	input_blocks: conv, then residual blocks, transformers, downsamplers; each block's result is kept
//	middle_block: residual block, transformer, residual block
//	output_blocks: as the input, each residual block taking the newest kept result too
//	out: norm, SiLU, conv
//
// Which modules a block has, how wide they are and how many transformer blocks
// lie in one is read off the checkpoint: a distilled network needs no code.
package unet

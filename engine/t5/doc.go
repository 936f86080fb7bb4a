// Package t5 is the encoder of T5 v1.1 and UMT5, which read prompts for FLUX, SD3
// and others.
//
// Block diagram (Raffel et al. 2020, arXiv:1910.10683; Hugging Face's T5 and UMT5
// for the details):
//
//	tokens → shared: rows of the table
//	encoder.block: RMS norm, attention with a bias by distance, added;
//	    RMS norm, GELU-gated MLP, added
//	encoder.final_layer_norm
//
// T5 has one table of biases, in the first block; UMT5 has one in each. Scores are
// not scaled. Heads are 64 wide; everything else is read off the shapes.
package t5

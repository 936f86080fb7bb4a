// Package rename says what a checkpoint is and what its tensors should be
// called: family detection from names and shapes, and the name tables that turn
// diffusers, open_clip, llama.cpp and other spellings into the names the
// original model used.
//
// Entry points:
//
//	Detect, DetectCompat   which family a set of tensors is, with the evidence
//	Contents               which components (VAE, CLIP, T5, LoRA, ...) a file holds
//	Family.Rename          one name to its original (LDM) spelling
//	Family.RenameCompat    the same as stable-diffusion.cpp does it, quirks included
//	Apply                  a whole checkpoint, with q/k/v fused and halves swapped
//	SeFi, Qwen3VL, Map     rewrites of one model or of a user's own table
//	CanonicalNames         the names under which an imatrix may know a tensor
//	Ignored                tensors that no runtime reads
//
// There are two flavours of every table. The compat flavour is what
// stable-diffusion.cpp (commit 97d2990) does to a name, to the letter, because
// imatrix files and its own outputs use those names. The default flavour is
// the same table with its limits lifted (any number of blocks, any suffix after
// the module name) and with the rewrites that a mere rename cannot express:
// split projections become one tensor, and modulation halves are swapped where
// diffusers stores them the other way round.
//
// Rules kept here:
//   - A rewrite is a view: no tensor data is read or held. A tensor whose bytes
//     do not change keeps the Source it had, so that a copy can stay a copy.
//   - Two inputs never end up under one name silently.
//   - A family is one row of one table; what differs between families is data.
//   - Names are matched within the diffusion model, so "model.diffusion_model.",
//     "unet.", "transformer." and no prefix at all are the same to detection.
package rename

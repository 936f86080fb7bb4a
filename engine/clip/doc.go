// Package clip is the text tower of CLIP and OpenCLIP: token and position
// embeddings, a stack of pre-norm transformer layers with causal attention, a
// final layer norm, and for OpenCLIP bigG a projection of the prompt's end.
//
// Sources: Radford et al. 2021 (arXiv:2103.00020); the module paths are those of
// Hugging Face's CLIPTextModel, which checkpoints are renamed to. OpenCLIP's
// fused in_proj is used as it is stored.
package clip

// Package vae is the decoder of the KL autoencoder that Stable Diffusion's
// latents come from (Rombach et al. 2022, arXiv:2112.10752; Esser et al. 2021,
// arXiv:2012.09841): it turns a latent into an image of eight times its size.
package vae

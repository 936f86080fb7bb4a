// Package sample holds the numeric side of diffusion sampling: how a network's output becomes a denoised latent
// (prediction types), which noise levels a run visits (schedulers), and how it steps between them (samplers).
//
// Entry points:
//
//	model, err := sample.NewModel(sample.Eps, sample.ModelOptions{})
//	sigmas, err := model.Sigmas(sample.Karras, steps, sample.ScheduleOptions{})
//	model.AddNoise(x, latent, noise, sigmas[0])
//	x, err = sample.Run(ctx, sample.DPMPP2M, x, sigmas, denoise, sample.Options{Noise: src})
//	model.Finish(x, sigmas[len(sigmas)-1])
//
// where denoise computes, from x at noise level sigma,
//
//	c := model.Scalings(sigma)
//	t := model.Timestep(sigma)
//	out := network(c.In*x, t)          // guided
//	denoised := out*c.Out + x*c.Skip
//
// Rules kept: the package knows nothing of networks or tensors, a latent is a []float32; arithmetic is float32 in
// the order stable-diffusion.cpp uses, with float64 where its C++ promotes, so that the same options give the same
// picture; nothing is random except through the noise source given.
//
// Sources: Karras et al. 2022 (arXiv:2206.00364) and k-diffusion for the frame and the Euler, Heun, DPM2 and LMS
// samplers; Lu et al. 2022 (arXiv:2211.01095) for DPM-Solver++; Zhang and Chen 2022 (arXiv:2204.13902) for iPNDM;
// Luo et al. 2023 (arXiv:2310.04378) for LCM; Zheng et al. 2024 (arXiv:2402.19159) for TCD. Numbers that differ
// from those follow stable-diffusion.cpp at commit 97d2990.
package sample

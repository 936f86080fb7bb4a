// Package rng draws the standard-normal noise that diffusion sampling starts from and adds on the way.
//
// The same seed must give the same picture as other programs, so each generator here reproduces a published
// one number for number:
//
//   - CUDA: Philox 4x32-10 with one counter lane per element, as torch draws on a GPU (default elsewhere).
//   - CPU: MT19937 with Box-Muller over blocks of sixteen, as torch.randn draws on a CPU.
//   - StdDefault: minstd_rand0 with the polar method, as libstdc++ builds std::default_random_engine and
//     std::normal_distribution<float>.
//
// Entry points: [ParseKind], [New], [Source]. A source is not safe for concurrent use. How draws are split over
// calls matters: two calls of 8 values are not one call of 16, for any of the three.
//
// Rules kept: float32 results are rounded where the originals round; nothing depends on the platform.
package rng

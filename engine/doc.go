// Package engine generates images with diffusion models, computing on the ggml
// library, and lets others watch the activations.
//
// Entry points:
//
//	model, err := engine.Load(ctx, lib, tensors, engine.Options{})
//	params := engine.DefaultParams()
//	params.Prompt = "a lighthouse"
//	images, err := model.Generate(ctx, params, engine.Hooks{})
//
// The tensors carry the names stable-diffusion.cpp uses at run time (package
// rename makes them) and may come from any container and have any type.
// Configurations are read off shapes; nothing is asked. What a family of models
// is made of lies in its own packages (clip, unet, vae …), and a family becomes
// known by a row in families.
//
// Rules kept:
//   - The same options give the picture and the statistics that
//     stable-diffusion.cpp gives: the order of network runs, of random draws and
//     of float32 operations is its.
//   - A model belongs to one goroutine at a time.
//   - NaN anywhere stops the generation with the layer that made it.
package engine

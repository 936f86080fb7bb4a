// Package graph is the layer between models and ggml: tensor handles with shapes
// written outermost first, named weights, scopes, and compiled graphs.
//
// A model is a function from inputs to outputs that is given a [Builder]:
//
//	weights := graph.NewWeights(device, tensors)
//	prog, err := device.Compile("unet", weights, func(b graph.Builder) graph.Tensor {
//		x := b.Input(tensor.F32, 1, 4, 8, 8)
//		return nn.Conv2D(b.In("input_blocks.0.0"), x, 1, 1)
//	})
//	err = weights.Load(ctx, nil)
//	out, err := prog.Run(ctx, graph.Floats(latent))
//
// Rules kept:
//   - A weight is what the model asks for: asking creates it, with the shape the
//     checkpoint has; what nobody asks for is never read. So a model is compiled
//     once for any size before Load, which also proves that no weight is missing.
//   - Weights keep their stored type where ggml can multiply by it. Kernels of
//     convolutions become f16 and vectors f32, as stable-diffusion.cpp has them.
//     Bytes go from the file into the backend's memory, with no second copy.
//   - The first error of a build stays in the Builder; layers need not check.
//   - Every op is remembered with the scope that built it, so that a NaN can be
//     traced to the layer that made it.
//   - A Device and all that belongs to it are used by one goroutine at a time.
package graph

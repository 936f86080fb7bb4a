// Package collect turns generations into an importance matrix: it watches the
// matrix products of a model, adds up the squares of what they are fed, and runs
// a list of prompts with checkpoints on the way.
//
// Entry points: [Recorder] adds one model's activations to an
// imatrix.Accumulator, [Run] works through prompts.
//
// Rules kept:
//   - Names are the checkpoint's canonical ones, the filter is
//     stable-diffusion.cpp's, and a call is one product, so that files of both
//     programs can be merged.
//   - Every row counts, whatever the type, strides and batch axes of the
//     activations. A value that is not finite stops the run at once and names
//     the weight it was about to meet.
package collect

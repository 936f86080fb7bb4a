// Package quant converts between float32 and every type that a tensor can be
// stored in: ggml's blocks with and without an importance matrix, and the plain
// number types of other containers.
//
// Lookup returns the Codec of a type. Codec.QuantizeExact writes the bytes that
// ggml_quantize_chunk of ggml (built without fused multiply-add) writes for the
// same rows and weights. Codec.Quantize writes the same bytes except where those
// would decode wrongly: it refuses NaN and infinite input, gives blocks that have
// a sub-block without weight equal weights, and keeps the place that ggml's iq3_s loses
// after an all-zero sub-block. docs/quantization.md lists the differences.
//
// # Weights
//
// Three things can be asked of the types that use an importance matrix: nil (the
// algorithm of llama-quantize without one), ones (what stable-diffusion.cpp passes
// when it has none: a different algorithm) and a row of an imatrix.
//
// # Arithmetic
//
// Everything is float32 in ggml's order. Products that feed a sum are written
// float32(a*b), which keeps the compiler from fusing them on machines that could.
//
// # Kernels
//
// Whole calls can be taken over by machine code that works on many blocks at
// once: hook in kernel.go registers a kernel for a type and an instruction set,
// UseCPU picks the set. A kernel gets every row of a call, writes the bytes of
// QuantizeExact, and leaves checks, counts and the default policy's repairs to
// Codec, which runs them after it. Files named *_kernel.go hold the hooks;
// internal/kernel the code, which the module in _gen generates.
//
// # Long rows
//
// With weights, a block of q4_0, q4_1, q5_0 and q5_1 depends on its whole row
// (Codec.RowScoped). RowSum and Codec.QuantizePart convert such a row in pieces.
//
// Facts: ggml (MIT), ggml-quants.c, ggml-common.h and ggml-impl.h as of version
// 0.23; checked against the linked library by the tests.
package quant

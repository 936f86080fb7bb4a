// Package tensor is the leaf every room shares: the table of element types
// (DType), what a tensor is called and shaped like (Info), where its stored
// bytes can be read (Source), and where they go in an output file (Layout).
//
// Rules kept here:
//   - There is exactly one dtype table. Names, ids, block sizes and byte sizes
//     are asked of it; no other package lists types.
//   - Shapes are outermost-first, as numpy and safetensors write them. The last
//     axis is the row: the run of elements that blocks are cut from.
//   - Every size is computed with checked arithmetic; a shape from a file can
//     make an error, never a wrong number.
package tensor

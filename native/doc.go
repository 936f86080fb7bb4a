// Package native binds the ggml shared library at run time, without cgo.
//
// The way in:
//
//	paths, err := native.Find(dir, ...)  // which files make up a library
//	lib, err := native.Open(paths)       // load, then the handshake
//	lib.QuantizeChunk, lib.ToFloat       // ggml's own conversions
//	lib.Devices, lib.NewBackend          // what can compute
//	lib.NewContext -> Graph -> Scheduler // build and run a graph
//
// A library is two files, libggml-base (tensors, types, graphs, scheduler) and
// libggml (the registry), plus one file per backend that libggml loads from
// their folder. Every C function is one field of a Go struct whose tag quotes
// the C prototype; the loader takes the symbol's name from the tag and checks
// the Go signature against it.
//
// Rules kept here:
//   - Nothing is called before the handshake has passed: version, symbols, the
//     type table against tensor.DType, and the memory layout of ggml_tensor.
//   - ggml ends the process when it is asked for something impossible. So
//     shapes, types and contiguity are checked in Go before an op is built and
//     become errors. Should ggml abort all the same, its abort handler reports
//     what was being built.
//   - No package-level function variables: two libraries can be open at once.
//     Callbacks are registered with purego once per process, never per call,
//     because purego keeps each one for good.
//   - Shapes are innermost-first here (ggml's ne), as everywhere in ggml.
//   - Memory that C keeps is C's: contexts, graphs and backends must be closed
//     by whoever made them, in reverse order.
package native

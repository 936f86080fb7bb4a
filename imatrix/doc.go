// Package imatrix reads, writes, merges, explains and collects importance
// matrices: for each weight tensor, how strongly its input columns are driven
// when the model runs. Quantizers use them to spend precision where it counts.
//
// # What is kept
//
// For a weight W of shape [rows, cols] (or several such matrices, one per
// expert) an Entry keeps, for each matrix m and column j, the sum over all seen
// activation rows x of x[j]², how many rows were summed (Counts[m]) and in how
// many operations (Calls). Units are those of the activations, squared.
//
// # Files
//
// The legacy .dat form (llama.cpp before mid-2025, stable-diffusion.cpp), little-endian, no magic:
//
//	i32 entries
//	entries × { i32 length, name, i32 calls, i32 n, f32[n] sum/count·calls }
//	i32 last chunk            (may be missing)
//	i32 length, dataset name  (may be missing)
//
// The GGUF form (llama-imatrix): keys general.type="imatrix",
// imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size and, per entry,
// tensors NAME.in_sum2 [matrices, cols] and NAME.counts [matrices, 1], F32.
//
// # Entry points
//
// Open gives a Set backed by a file, Merge a Set that adds others as it is
// read, Accumulator a Set that grows while a model runs; Write puts any Set in
// either form. Statistics, Compare and Index answer questions about a Set.
//
// # Rules
//
// Every length from a file is bounded by the bytes left before it is used.
// Sums are float64. One entry is in memory at a time: a Set of a file reads
// entries when asked. NaN, infinite and negative statistics are refused when a
// file is opened, naming the entry, and again before anything is written.
package imatrix

// Package writer writes model files: many tensors, computed in parallel, at
// offsets that are known before the first byte is written.
//
// A Plan lists the tensors and the layout of the file. Write cuts each tensor
// into chunks of at most a few MiB, hands them to workers in the order in which
// their inputs lie on disk, and puts each chunk where it belongs. Bytes do not
// depend on the number of workers or on the memory budget.
//
// # All or nothing
//
// Everything goes to a temporary file beside the output, which is flushed to
// disk and then renamed over it. After any failure, a cancelled context or a
// full disk the old output (or its absence) is untouched and the temporary file
// is gone. Only a killed process leaves one behind: its name is fixed for an
// output (".NAME.sdtool-tmp"), and the next run for the same output takes it
// over. A lock on it keeps two runs from writing one output.
//
// With Options.Resume the temporary file stays, and beside it a journal
// (".NAME.sdtool-journal") of the chunks that are in it, with a checksum of each. The
// next run with the same fingerprint reads them back and writes only the rest.
//
// # Memory
//
// Workers own their buffers, and their sizes together stay within
// Options.MaxMemory. A tensor whose smallest piece does not fit a worker's share
// makes the pool smaller; one that does not fit the whole budget is a
// *BudgetError before anything is written.
package writer

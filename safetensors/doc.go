// Package safetensors reads safetensors files and sharded sets, and lays out new
// files.
//
// The file, in order:
//
//  1. u64, little-endian: the length N of the header, at most 100 MB;
//  2. N bytes of JSON, UTF-8, beginning with '{' and ending in spaces if it was
//     padded: an object from tensor name to
//     {"dtype": string, "shape": [int…], "data_offsets": [begin, end]},
//     and under "__metadata__" an object of strings;
//  3. tensor data. Offsets count from here, which need not be aligned.
//
// Open keeps the rules of the safetensors crate: offsets run from 0 to the end
// of the file without holes or overlaps, dtype and shape agree with them, no key
// is there twice, and nothing follows the data. Besides, it refuses empty names
// and names with a NUL in them, and counts beyond any model (see limits).
//
// A sharded set is an index, JSON with a "weight_map" from tensor name to file
// name, and the files it names. OpenIndex takes exactly those files, wants each
// tensor in the file that the map names, and does not leave the index's folder
// unless told to.
//
// Memory: about the header's own size twice over. Tensor data is never held.
package safetensors

// Package gguf reads GGUF files (versions 1 to 3, either byte order, split
// sets) and lays out new ones (version 3, little-endian).
//
// The file, in order; integers are little-endian unless the whole file is not:
//
//  1. magic "GGUF", u32 version, then the number of tensors and of metadata
//     entries (i64; u32 in version 1);
//  2. metadata entries: key (string), u32 value type, value;
//     a string is its length (u64; u32 in version 1) and its bytes,
//     an array is the u32 type of its elements, their number (as a length), elements;
//  3. tensors: name (string), u32 number of axes, axes innermost first (i64; u32
//     in version 1), u32 ggml type, u64 offset from the start of the data;
//  4. zero bytes up to a multiple of general.alignment (default 32);
//  5. tensor data, each tensor padded to the alignment.
//
// A big-endian file is known by its version, whose low half is then zero.
//
// Open checks what ggml's own reader checks, and refuses besides: names and keys
// that are not UTF-8 or have a NUL in them, and empty names. It is more
// lenient in three places, because files in circulation need it: names longer
// than 63 bytes, up to eight axes (ComfyUI-GGUF writes 5-D patch embeddings),
// and arrays of arrays. Bytes after the last tensor are allowed, as ggml allows
// them, and counted in File.Trailing.
//
// Memory: the header's own size and a small factor, whatever its counts say;
// nothing is allocated for a count that the rest of the file could not hold.
// Tensor data is never held.
package gguf

// Package torch reads the tensors of torch checkpoints (.ckpt, .pt, .pth, .bin)
// without Python and without running anything.
//
// Two forms are read:
//
//   - zip archives, of torch 1.6 and later: PREFIX/data.pkl, a pickle; one stored
//     member PREFIX/data/KEY for each storage; PREFIX/byteorder, if it is there,
//     says "little";
//   - the stream before that: five pickles (a magic number, a version, facts about
//     the system, the object, the keys of the storages), then for each key an
//     int64 number of elements and the elements.
//
// A pickle is a program for a stack machine that makes objects by calling Python
// functions by name. The machine here calls nothing. It knows a list of names
// (globals.go): containers, storages, dtypes and the functions that make a tensor
// out of a storage; each is worked out in Go. Any other name becomes an opaque
// value. If tensor data is inside such a value, that is an error that names it; if
// not, the value is passed over and listed in File.Skipped, for checkpoints of
// training frameworks are full of them. Names from modules that only an attacker
// has a use for (os, subprocess, builtins.eval …) are an error anywhere.
//
// The tensors taken are those of the state dict: the outermost dict, or the dict
// in it under a key that is known to hold one (walk.go). Tensors may share a
// storage and may have any strides; sources give their elements in C order,
// reading only what is asked for.
//
// Memory: all objects of the pickle, charged against a limit of twice the file's
// size and 8 MiB, at most 512 MiB. Tensor data is never held.
package torch

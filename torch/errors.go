package torch

import (
	"errors"
	"fmt"

	"github.com/sdtool/sdtool/tensor"
)

// ErrNoTensors is wrapped when a file is sound but no state dict is in it.
var ErrNoTensors = errors.New("no tensors found")

// ErrorKind says what is wrong with a file.
type ErrorKind uint8

// Kinds of FormatError.
const (
	KindForeign    ErrorKind = iota + 1 // the file is something else
	KindZip                             // the zip archive is broken, or of a kind that is not read
	KindCompressed                      // a storage is stored compressed
	KindPickle                          // the pickle is broken, or not what torch writes
	KindLimit                           // more objects, nesting or tensors than this package takes
	KindCut                             // the file ends too early
	KindEndian                          // big-endian data
	KindStorage                         // a storage that is missing or of the wrong size
	KindDType                           // a tensor of a type that is not known
	KindShape                           // sizes and strides that do not fit the storage
	KindDuplicate                       // two tensors with one name, or two members of an archive
	KindName                            // a tensor name that cannot be used
)

// FormatError reports a checkpoint that is broken or of a kind that is not read.
type FormatError struct {
	Path   string
	Kind   ErrorKind
	Tensor string // name, if one is concerned
	Offset int64  // in the file, or in the pickle of an archive; -1 if none is concerned
	Msg    string
	Err    error // cause, if any
}

func (e *FormatError) Error() string {
	return tensor.Complaint(e.Path, "", e.Tensor, e.Msg, e.Err, e.Offset)
}

func (e *FormatError) Unwrap() error { return e.Err }

// GlobalError reports a Python name in a pickle that is not on the list of what
// this package works out: one that could do harm if it were called, or one that
// stands between the file and its tensors.
type GlobalError struct {
	Path   string
	Name   string // module and name, as "os.system"
	Tensor string // what it was found in, if that is known
	Harm   bool   // the name is one that only an attacker has a use for
}

func (e *GlobalError) Error() string {
	where := ""
	if e.Tensor != "" {
		where = fmt.Sprintf("%q: ", tensor.Clip(e.Tensor))
	}
	if e.Harm {
		return fmt.Sprintf("%s: %sthe pickle asks for %q, which could run code; nothing was run, and the file is refused", e.Path, where, tensor.Clip(e.Name))
	}
	return fmt.Sprintf("%s: %sits data is inside a Python object of %q, which is not known how to read", e.Path, where, tensor.Clip(e.Name))
}

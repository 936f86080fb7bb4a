package gguf

import (
	"fmt"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// ErrorKind says what is wrong with a file or with what was to be laid out.
type ErrorKind uint8

// Kinds of FormatError.
const (
	KindMagic           ErrorKind = iota + 1 // the file is no GGUF
	KindVersion                              // a version this package does not know
	KindHeaderCut                            // the file ends inside the header
	KindCount                                // a length or count that the rest of the file cannot hold
	KindLimit                                // a length or count over a limit of this package
	KindKey                                  // an empty or over-long metadata key
	KindDuplicateKey                         // two metadata entries with one key
	KindValue                                // a metadata value of an unknown or unfit type
	KindAlignment                            // general.alignment is not a u32 power of two
	KindName                                 // a tensor name the format or its readers cannot hold
	KindDuplicateTensor                      // two tensors with one name
	KindShape                                // too many dims, a negative or overflowing one, or a row that blocks do not fit
	KindDType                                // an element type ggml has not, or has removed
	KindOffset                               // tensor data with a gap, an overlap or out of order
	KindSplit                                // a part that does not belong to its split set
)

// FormatError reports bytes that break the format, or tensors and metadata that
// the format cannot hold.
type FormatError struct {
	Path   string // "" when laying out
	Kind   ErrorKind
	Key    string // metadata key, if one is concerned
	Tensor string // tensor name, if one is concerned
	Offset int64  // in the file, -1 if none is concerned
	Msg    string
	Err    error // cause, if any
}

func (e *FormatError) Error() string {
	return tensor.Complaint(e.Path, e.Key, e.Tensor, e.Msg, e.Err, e.Offset)
}

func (e *FormatError) Unwrap() error { return e.Err }

// TruncatedError reports a file whose header is sound but whose tensor data is
// not all there.
type TruncatedError = tensor.TruncatedError

// EndianError reports a big-endian file with a tensor of a type whose byte order
// inside its blocks has never been written down.
type EndianError struct {
	Path   string
	Tensor string
	DType  tensor.DType
}

func (e *EndianError) Error() string {
	return fmt.Sprintf("%s: tensor %q: cannot read big-endian data of type %s; convert the file on the machine that made it", e.Path, tensor.Clip(e.Tensor), e.DType)
}

// NameError reports tensor names that are too long for the readers of the file
// to be written.
type NameError struct {
	Limit int // longest allowed name, in bytes
	Names []string
}

func (e *NameError) Error() string {
	const most = 5
	shown := make([]string, 0, most)
	for _, n := range e.Names[:min(most, len(e.Names))] {
		shown = append(shown, fmt.Sprintf("%q (%d bytes)", tensor.Clip(n), len(n)))
	}
	text := fmt.Sprintf("%d tensor names are longer than %d bytes: %s", len(e.Names), e.Limit, strings.Join(shown, ", "))
	if len(e.Names) > most {
		text += ", …"
	}
	return text
}

// MissingPartsError lists the parts of a split set that are not there.
type MissingPartsError struct {
	Path    string   // the part that was asked for
	Missing []string // paths
}

func (e *MissingPartsError) Error() string {
	return fmt.Sprintf("%s: %d parts of the split set are missing: %s", e.Path, len(e.Missing), strings.Join(e.Missing, ", "))
}

package tensor

import (
	"errors"
	"fmt"
	"io"
)

// Source gives positioned reads of one tensor's stored bytes, in C order, in
// the tensor's own DType, little-endian. Reads may come from many goroutines.
type Source interface {
	io.ReaderAt
	// Size is the number of stored bytes; it equals Info.Bytes of the tensor.
	Size() int64
}

// FloatSource is a Source of F32 elements that are computed as they are read:
// decoded, scaled, gathered. ReadFloats gives them without a detour over bytes.
type FloatSource interface {
	Source
	// ReadFloats fills dst with the elements from first on, in C order.
	ReadFloats(dst []float32, first int64) error
}

// Tensor is one tensor of an opened checkpoint.
type Tensor struct {
	Info
	Source Source
}

// Section is the Source of bytes that lie in one run of one file, which is what
// most tensors are. Writers use File and Offset to read in disk order and to
// copy without going through memory.
type Section struct {
	File   io.ReaderAt // usually an *os.File
	Path   string      // for messages
	Offset int64       // of the first byte in File
	Length int64       // in bytes
}

// Size returns the length of the section in bytes.
func (s *Section) Size() int64 { return s.Length }

// ReadAt reads from the section. A file that has become shorter than it was
// when opened gives a *ChangedError that wraps io.ErrUnexpectedEOF.
func (s *Section) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.Length {
		return 0, fmt.Errorf("read at %d of a section of %d bytes of %s: out of range", off, s.Length, s.Path)
	}
	want := len(p)
	if int64(want) > s.Length-off {
		p = p[:s.Length-off]
	}
	n, err := s.File.ReadAt(p, s.Offset+off)
	switch {
	case n == len(p) && n == want:
		return n, nil
	case n == len(p):
		return n, io.EOF
	}
	return n, short(s.Path, s.Offset+off, n, len(p), err)
}

// ReadFull fills p from off on in a file whose known size covers it. A file that
// has become shorter gives a *ChangedError.
func ReadFull(r io.ReaderAt, path string, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	return short(path, off, n, len(p), err)
}

// ReadExact reads exactly len(p) bytes of a Source from off on. Less is an error that
// wraps io.ErrUnexpectedEOF, unless the Source gave another cause.
func ReadExact(s io.ReaderAt, p []byte, off int64) error {
	n, err := s.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Layout says where everything goes in an output file: the complete header and,
// for each tensor in order, the absolute offset of its first byte. Bytes that
// neither covers are zero.
type Layout struct {
	Header  []byte
	Offsets []int64
	Size    int64 // of the whole file
}

package writer

import (
	"context"

	"github.com/sdtool/sdtool/tensor"
)

// Filler computes the bytes of one output tensor, piece by piece. It is called
// from several goroutines at once, for different pieces.
type Filler interface {
	// Unit is the number of output bytes of the smallest piece that can be
	// filled alone, such as a block or a row. The tensor's size is a multiple of it.
	Unit() int64
	// Scratch is the number of bytes of scratch that filling n units takes. It
	// must not grow faster than n, up to a constant.
	Scratch(n int64) int64
	// Fill writes units [first, first+n) to dst, which has room for exactly n.
	Fill(ctx context.Context, dst []byte, first, n int64, s *Scratch) error
}

// Entry is one tensor of an output file. It has a Fill, or a Copy, or no bytes.
type Entry struct {
	tensor.Info
	// Fill computes the bytes.
	Fill Filler
	// Copy is where the bytes stand ready in an input file; nil if they do not.
	Copy *tensor.Section
	// Order is where the input lies on disk, so that it is read front to back.
	Order Order
}

// unit is the number of bytes in which jobs count the entry: one for a copy.
func (e *Entry) unit() int64 {
	if e.Copy == nil && e.Fill != nil {
		return e.Fill.Unit()
	}
	return 1
}

// Order is a place in the inputs: a number for the file and an offset in it.
type Order struct {
	File   int
	Offset int64
}

// Plan is a file to be written: Layout.Offsets[i] is where Entries[i] goes.
type Plan struct {
	Entries []Entry
	Layout  *tensor.Layout
}

// Scratch is a worker's memory besides the output chunk. Slices that it returns
// hold whatever the previous use left in them, and are valid until the slot is
// asked for again. What a Fill takes in all may not exceed what its Filler's
// Scratch said, each slice rounded up to 64 bytes.
type Scratch struct {
	bytes  map[int][]byte
	floats map[int][]float32
}

// Bytes returns slot with n bytes.
func (s *Scratch) Bytes(slot int, n int64) []byte {
	if b := s.bytes[slot]; int64(cap(b)) >= n {
		return b[:n]
	}
	if s.bytes == nil {
		s.bytes = make(map[int][]byte)
	}
	b := make([]byte, n)
	s.bytes[slot] = b
	return b
}

// Floats returns slot with n floats. Its slots are apart from those of Bytes.
func (s *Scratch) Floats(slot int, n int64) []float32 {
	if f := s.floats[slot]; int64(cap(f)) >= n {
		return f[:n]
	}
	if s.floats == nil {
		s.floats = make(map[int][]float32)
	}
	f := make([]float32, n)
	s.floats[slot] = f
	return f
}

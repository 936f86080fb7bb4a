package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/sdtool/sdtool/tensor"
)

// window is how much of the header is read at a time, in bytes.
const window = 64 << 10

// scanner reads the header from front to back. It knows how many bytes the file
// has left, so that no length is believed before it could be true.
type scanner struct {
	r     io.ReaderAt
	path  string
	size  int64
	order binary.ByteOrder
	v1    bool // lengths, counts and axes are u32

	buf  []byte // unread part of the window
	back []byte // the whole window
	pos  int64  // offset in the file of buf[0]

	// What is being read, for messages.
	key, tensor string
}

func newScanner(r io.ReaderAt, size int64, path string) *scanner {
	return &scanner{r: r, path: path, size: size, order: binary.LittleEndian, back: make([]byte, min(window, max(size, 1)))}
}

// fail makes a FormatError at the present offset.
func (s *scanner) fail(kind ErrorKind, format string, args ...any) error {
	return s.failAt(s.pos, kind, format, args...)
}

func (s *scanner) failAt(off int64, kind ErrorKind, format string, args ...any) error {
	return &FormatError{Path: s.path, Kind: kind, Key: s.key, Tensor: s.tensor, Offset: off, Msg: fmt.Sprintf(format, args...)}
}

// left returns the number of unread bytes of the file.
func (s *scanner) left() int64 { return s.size - s.pos }

// bytes returns the next n bytes (at most window); they are valid until the
// next call. what, in two parts so that nobody has to join them, names them in the
// error for a file that ends before.
func (s *scanner) bytes(n int, what, of string) ([]byte, error) {
	if int64(n) > s.left() {
		return nil, s.fail(KindHeaderCut, "the file ends inside the header: %s%s needs %d bytes, %d are left", what, of, n, s.left())
	}
	if len(s.buf) < n {
		want := s.back[:min(int64(len(s.back)), s.left())]
		if err := tensor.ReadFull(s.r, s.path, want, s.pos); err != nil {
			return nil, err
		}
		s.buf = want
	}
	b := s.buf[:n]
	s.buf, s.pos = s.buf[n:], s.pos+int64(n)
	return b, nil
}

func (s *scanner) u32(what string) (uint32, error) {
	b, err := s.bytes(4, what, "")
	if err != nil {
		return 0, err
	}
	return s.order.Uint32(b), nil
}

func (s *scanner) u64(what string) (uint64, error) {
	b, err := s.bytes(8, what, "")
	if err != nil {
		return 0, err
	}
	return s.order.Uint64(b), nil
}

// length reads a count as wide as the version has it.
func (s *scanner) length(what, of string) (uint64, error) {
	b, err := s.bytes(int(s.lengthBytes()), what, of)
	switch {
	case err != nil:
		return 0, err
	case s.v1:
		return uint64(s.order.Uint32(b)), nil
	}
	return s.order.Uint64(b), nil
}

// lengthBytes is the width of a length in the file.
func (s *scanner) lengthBytes() int64 {
	if s.v1 {
		return 4
	}
	return 8
}

// count reads a count of things that take at least unit bytes each and refuses
// it if the rest of the file cannot hold that many, or if it is over limit.
func (s *scanner) count(what, of string, unit, limit int64) (int64, error) {
	at := s.pos
	n, err := s.length("the number of ", what)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64 || int64(n) > s.left()/unit {
		return 0, s.failAt(at, KindCount, "found %d %s%s, but the %d bytes that are left hold at most %d", n, what, of, s.left(), s.left()/unit)
	}
	if int64(n) > limit {
		return 0, s.failAt(at, KindLimit, "found %d %s%s, want at most %d", n, what, of, limit)
	}
	return int64(n), nil
}

// str reads a string of at most limit bytes.
func (s *scanner) str(what string, limit int64) (string, error) {
	n, err := s.count("bytes in ", what, 1, limit)
	if err != nil {
		return "", err
	}
	if n <= int64(len(s.back)) {
		b, err := s.bytes(int(n), what, "")
		return string(b), err
	}
	b := make([]byte, n)
	if err := s.raw(b); err != nil {
		return "", err
	}
	return string(b), nil
}

// raw fills p, whose length the caller has compared with left.
func (s *scanner) raw(p []byte) error {
	n := copy(p, s.buf)
	if err := tensor.ReadFull(s.r, s.path, p[n:], s.pos+int64(n)); err != nil {
		return err
	}
	s.buf, s.pos = s.buf[n:], s.pos+int64(len(p))
	return nil
}

package torch

import (
	"bytes"
	"fmt"
	"io"

	"github.com/sdtool/sdtool/tensor"
)

// stream reads bytes front to back through a window, and knows how many are left.
type stream struct {
	r    io.ReaderAt
	path string
	pos  int64 // offset of buf[0]
	end  int64
	back []byte
	buf  []byte
}

const window = 64 << 10

func newStream(r io.ReaderAt, path string, pos, end int64) *stream {
	return &stream{r: r, path: path, pos: pos, end: end, back: make([]byte, min(window, max(end-pos, 1)))}
}

func (s *stream) left() int64 { return s.end - s.pos }

func (s *stream) fail(kind ErrorKind, format string, args ...any) error {
	return &FormatError{Path: s.path, Kind: kind, Offset: s.pos, Msg: fmt.Sprintf(format, args...)}
}

// fill makes sure that n bytes (at most window) are in buf.
func (s *stream) fill(n int) error {
	if len(s.buf) >= n {
		return nil
	}
	if int64(n) > s.left() {
		return s.fail(KindCut, "the pickle ends too early: %d bytes are wanted, %d are left", n, s.left())
	}
	b := s.back[:min(int64(len(s.back)), s.left())]
	if err := tensor.ReadFull(s.r, s.path, b, s.pos); err != nil {
		return err
	}
	s.buf = b
	return nil
}

// take returns the next n bytes (at most window); they are valid until the next call.
func (s *stream) take(n int) ([]byte, error) {
	if err := s.fill(n); err != nil {
		return nil, err
	}
	b := s.buf[:n]
	s.buf, s.pos = s.buf[n:], s.pos+int64(n)
	return b, nil
}

// copyOut returns a copy of the next n bytes.
func (s *stream) copyOut(n int64) ([]byte, error) {
	if n < 0 || n > s.left() {
		return nil, s.fail(KindCut, "the pickle ends too early: %d bytes are wanted, %d are left", n, s.left())
	}
	out := make([]byte, n)
	k := copy(out, s.buf)
	if err := tensor.ReadFull(s.r, s.path, out[k:], s.pos+int64(k)); err != nil {
		return nil, err
	}
	s.buf, s.pos = s.buf[k:], s.pos+n
	return out, nil
}

// skip passes over n bytes.
func (s *stream) skip(n int64) error {
	if n < 0 || n > s.left() {
		return s.fail(KindCut, "the pickle ends too early: %d bytes are wanted, %d are left", n, s.left())
	}
	s.buf, s.pos = s.buf[min(n, int64(len(s.buf))):], s.pos+n
	return nil
}

// line returns the bytes up to the next newline, without it.
func (s *stream) line() (string, error) {
	if err := s.fill(int(min(int64(len(s.back)), s.left()))); err != nil {
		return "", err
	}
	i := bytes.IndexByte(s.buf, '\n')
	if i < 0 {
		return "", s.fail(KindPickle, "a line of the pickle has no end")
	}
	b, err := s.take(i + 1)
	if err != nil {
		return "", err
	}
	return string(b[:i]), nil
}

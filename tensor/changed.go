package tensor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ChangedError reports an input file that is no longer what it was when it was
// opened: somebody is still writing it, or has replaced or cut it.
type ChangedError struct {
	Path string
	What string // what was seen, in words
	Err  error  // io.ErrUnexpectedEOF for a read that came back short
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s changed while it was being read: %s", e.Path, e.What)
}

func (e *ChangedError) Unwrap() error { return e.Err }

// Stamp is the size and modification time of an open file at one moment.
type Stamp struct {
	file *os.File
	path string
	size int64
	time time.Time
}

// NewStamp takes the stamp of a file that has just been opened.
func NewStamp(f *os.File, path string) (Stamp, error) {
	info, err := f.Stat()
	if err != nil {
		return Stamp{}, err
	}
	return Stamp{f, path, info.Size(), info.ModTime()}, nil
}

// Size returns the size the file had when the stamp was taken.
func (s Stamp) Size() int64 { return s.size }

// Check returns a *ChangedError if the file has another size or modification
// time now. Both are those of the open file, so a file renamed over its path
// does no harm and is not reported.
func (s Stamp) Check() error {
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("look at %s again: %w", s.path, err)
	}
	switch now := info.Size(); {
	case now < s.size:
		return &ChangedError{s.path, fmt.Sprintf("it shrank from %d to %d bytes", s.size, now), io.ErrUnexpectedEOF}
	case now > s.size:
		return &ChangedError{Path: s.path, What: fmt.Sprintf("it grew from %d to %d bytes", s.size, now)}
	case !info.ModTime().Equal(s.time):
		return &ChangedError{Path: s.path, What: "it was written to at " + info.ModTime().Format(time.RFC3339)}
	}
	return nil
}

// short returns the error for a read inside a file's known size that gave n of
// want bytes.
func short(path string, off int64, n, want int, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &ChangedError{path, fmt.Sprintf("read at offset %d: got %d of %d bytes", off, n, want), io.ErrUnexpectedEOF}
	}
	return fmt.Errorf("read %s at offset %d: got %d of %d bytes: %w", path, off, n, want, err)
}

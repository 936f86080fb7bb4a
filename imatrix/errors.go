package imatrix

import (
	"errors"
	"fmt"
)

// Kinds of faults in an importance matrix; match them with errors.Is.
var (
	// ErrFormat marks a file that is not an importance matrix or is damaged.
	ErrFormat = errors.New("malformed importance matrix")
	// ErrTruncated marks a file that ends before its contents do.
	ErrTruncated = errors.New("file is cut short")
	// ErrEmpty marks a matrix without entries.
	ErrEmpty = errors.New("no entries")
	// ErrDuplicate marks a name that occurs twice in one file.
	ErrDuplicate = errors.New("entry occurs twice")
	// ErrNotFinite marks a NaN, infinite or negative statistic.
	ErrNotFinite = errors.New("statistic is not a finite non-negative number")
	// ErrWidth marks two widths for one weight, or a width the weight does not have.
	ErrWidth = errors.New("number of columns does not match")
)

// FileError says which file, and if known which entry, a fault was found in.
type FileError struct {
	Path  string
	Entry string // empty if the fault is not in one entry
	Err   error
}

func (e *FileError) Error() string {
	if e.Entry == "" {
		return fmt.Sprintf("read importance matrix %s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("read importance matrix %s: entry %q: %v", e.Path, e.Entry, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// WidthError reports statistics whose width is not that of the weight.
type WidthError struct {
	Entry     string
	Got, Want int64 // columns
	Where     string
}

func (e *WidthError) Error() string {
	return fmt.Sprintf("importance of %q: %d columns in %s, expected %d", e.Entry, e.Got, e.Where, e.Want)
}

// Is makes errors.Is(err, ErrWidth) true.
func (e *WidthError) Is(target error) bool { return target == ErrWidth }

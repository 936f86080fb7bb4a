package writer

import (
	"errors"
	"fmt"
	"math"
	"syscall"
)

// Errors that callers decide on.
var (
	// ErrExists: the output is there and Options.Overwrite is not set.
	ErrExists = errors.New("it already exists (use --overwrite to replace it)")
	// ErrInput: the output is one of the inputs, whatever the paths look like.
	ErrInput = errors.New("it is also an input, which is never modified")
	// ErrBusy: another process is writing the same output.
	ErrBusy = errors.New("another sdtool is writing it")
	// ErrTarget: the output is something that cannot be replaced by a file.
	ErrTarget = errors.New("not a place for a file")
	// ErrSize: the finished file is not as long as planned.
	ErrSize = errors.New("wrong size after writing")
)

// SpaceError reports a disk without room for the output.
type SpaceError struct {
	Path       string
	Need, Free int64 // bytes
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("write %s: needs %s, %s free", e.Path, FormatSize(e.Need), FormatSize(e.Free))
}

// Unwrap returns syscall.ENOSPC, whichever way the lack was found.
func (e *SpaceError) Unwrap() error { return syscall.ENOSPC }

// BudgetError reports a tensor whose smallest piece is larger than the memory budget.
type BudgetError struct {
	Tensor       string
	Need, Budget int64 // bytes
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("write tensor %q: needs %s of memory at a time, the budget is %s (--max-memory)", e.Tensor, FormatSize(e.Need), FormatSize(e.Budget))
}

// TensorError says in which tensor an error happened.
type TensorError struct {
	Tensor string
	Err    error
}

func (e *TensorError) Error() string { return fmt.Sprintf("write tensor %q: %v", e.Tensor, e.Err) }
func (e *TensorError) Unwrap() error { return e.Err }

// FormatSize prints a number of bytes as people say it, in powers of 1000.
func FormatSize(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), 0
	for v >= 999.95 && unit < 6 {
		v /= 1000
		unit++
	}
	return fmt.Sprintf("%.1f %cB", math.Round(v*10)/10, "_kMGTPE"[unit])
}

package tensor

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// ErrOverflow is wrapped by every error about a size that does not fit int64.
var ErrOverflow = errors.New("size overflows 64 bits")

// ErrBlock is wrapped when a row is not a whole number of blocks.
var ErrBlock = errors.New("row is not a whole number of blocks")

// Info says what a tensor is: its name, element type and shape.
type Info struct {
	Name  string
	DType DType
	Shape []int64 // outermost first; empty for a scalar
}

// Elements returns the product of the axes: 1 for a scalar, 0 if any axis is 0.
// It fails for a negative axis and for a product that overflows int64 even if
// another axis is 0.
func (i Info) Elements() (int64, error) { return Elements(i.Shape) }

// Cols returns the length of a row: the last axis, or 1 for a scalar.
func (i Info) Cols() int64 {
	if len(i.Shape) == 0 {
		return 1
	}
	return i.Shape[len(i.Shape)-1]
}

// Rows returns the number of rows: the product of all axes but the last. The
// caller has checked the shape with Elements.
func (i Info) Rows() int64 {
	rows := int64(1)
	for _, n := range i.Shape[:max(len(i.Shape)-1, 0)] {
		rows *= n
	}
	return rows
}

// Bytes returns the stored size in bytes. It fails with ErrOverflow, and with
// ErrBlock if the type has blocks that a row cannot be cut into. The sub-byte
// types F4 and F6 pack across the whole tensor, as safetensors does, so only
// their element count must fit.
func (i Info) Bytes() (int64, error) {
	n, err := i.Elements()
	if err != nil {
		return 0, err
	}
	block := i.DType.Block()
	unit := n
	if i.DType.IsQuantized() {
		unit = i.Cols()
	}
	if unit%block != 0 {
		return 0, fmt.Errorf("%w: %d elements, %s has blocks of %d", ErrBlock, unit, i.DType, block)
	}
	return CheckedMul(n/block, i.DType.BlockBytes())
}

// String formats the tensor for messages: name, type and shape.
func (i Info) String() string {
	return fmt.Sprintf("%q %s%s", i.Name, i.DType, ShapeString(i.Shape))
}

// Elements returns the product of the axes of a shape; see Info.Elements.
func Elements(shape []int64) (int64, error) {
	n, zero := int64(1), false
	for _, axis := range shape {
		if axis < 0 {
			return 0, fmt.Errorf("negative axis in shape %s", ShapeString(shape))
		}
		if axis == 0 {
			zero = true
			continue
		}
		var err error
		if n, err = CheckedMul(n, axis); err != nil {
			return 0, fmt.Errorf("shape %s: %w", ShapeString(shape), err)
		}
	}
	if zero {
		return 0, nil
	}
	return n, nil
}

// CheckedMul returns a*b for non-negative a and b, or ErrOverflow.
func CheckedMul(a, b int64) (int64, error) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, ErrOverflow
	}
	return int64(lo), nil
}

// CheckedAdd returns a+b for non-negative a and b, or ErrOverflow.
func CheckedAdd(a, b int64) (int64, error) {
	if a > math.MaxInt64-b {
		return 0, ErrOverflow
	}
	return a + b, nil
}

// AlignUp returns n rounded up to a multiple of align (a positive number), or
// ErrOverflow.
func AlignUp(n, align int64) (int64, error) {
	rest := n % align
	if rest == 0 {
		return n, nil
	}
	return CheckedAdd(n, align-rest)
}

// ShapeString formats a shape as numpy prints it without spaces: "[2,3]".
func ShapeString(shape []int64) string {
	parts := make([]string, len(shape))
	for i, n := range shape {
		parts[i] = strconv.FormatInt(n, 10)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

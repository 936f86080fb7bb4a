package convert

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// RangeError reports an integer that the output type cannot hold.
type RangeError struct {
	Index int64
	Value string
	Type  tensor.DType
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("element %d is %s, which %s cannot hold", e.Index, e.Value, e.Type)
}

// intFill converts integers, checking that each fits; with truncate it keeps
// the low bits instead, as stable-diffusion.cpp does.
type intFill struct {
	source   tensor.Source
	from, to tensor.DType
	truncate bool
	cut      *atomic.Int64 // counts values that lost bits
}

func (f *intFill) Unit() int64           { return f.to.BlockBytes() }
func (f *intFill) Scratch(n int64) int64 { return min(n, pieceElements)*f.from.BlockBytes() + 64 }

func (f *intFill) Fill(ctx context.Context, dst []byte, first, n int64, s *writer.Scratch) error {
	in, out := f.from.BlockBytes(), f.to.BlockBytes()
	for done := int64(0); done < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		count := min(n-done, pieceElements)
		raw := s.Bytes(1, count*in)
		if err := tensor.ReadExact(f.source, raw, (first+done)*in); err != nil {
			return err
		}
		for i := range count {
			v, ok := loadInt(raw[i*in:], f.from)
			if !ok || !holds(f.to, v) {
				if !f.truncate {
					return &RangeError{first + done + i, intString(raw[i*in:], f.from), f.to}
				}
				f.cut.Add(1)
			}
			storeInt(dst[(done+i)*out:], f.to, v)
		}
		done += count
	}
	return nil
}

// loadInt returns a stored integer; ok is false if int64 cannot hold it.
func loadInt(b []byte, d tensor.DType) (v int64, ok bool) {
	le := binary.LittleEndian
	switch d {
	case tensor.I8:
		return int64(int8(b[0])), true
	case tensor.U8, tensor.Bool:
		return int64(b[0]), true
	case tensor.I16:
		return int64(int16(le.Uint16(b))), true
	case tensor.U16:
		return int64(le.Uint16(b)), true
	case tensor.I32:
		return int64(int32(le.Uint32(b))), true
	case tensor.U32:
		return int64(le.Uint32(b)), true
	case tensor.I64:
		return int64(le.Uint64(b)), true
	case tensor.U64:
		u := le.Uint64(b)
		return int64(u), u <= math.MaxInt64
	}
	return 0, false
}

func intString(b []byte, d tensor.DType) string {
	if d == tensor.U64 {
		return fmt.Sprint(binary.LittleEndian.Uint64(b))
	}
	v, _ := loadInt(b, d)
	return fmt.Sprint(v)
}

func storeInt(b []byte, d tensor.DType, v int64) {
	le := binary.LittleEndian
	switch d.BlockBytes() {
	case 1:
		b[0] = byte(v)
	case 2:
		le.PutUint16(b, uint16(v))
	case 4:
		le.PutUint32(b, uint32(v))
	case 8:
		le.PutUint64(b, uint64(v))
	}
}

// holds reports whether an integer type can hold a value.
func holds(d tensor.DType, v int64) bool {
	bits := 8 * d.BlockBytes()
	if d == tensor.Bool {
		return v == 0 || v == 1
	}
	if signed(d) {
		return bits == 64 || v >= -1<<(bits-1) && v < 1<<(bits-1)
	}
	return v >= 0 && (bits == 64 || v < 1<<bits)
}

func signed(d tensor.DType) bool {
	return d == tensor.I8 || d == tensor.I16 || d == tensor.I32 || d == tensor.I64
}

// scanLimit is the size up to which the values of an I64 tensor are looked at
// to see whether I32 can hold them. Real ones are position ids of a few KiB.
const scanLimit = 16 << 20

// narrow reports whether every value of an I64 tensor fits I32. Larger tensors
// than scanLimit are not looked at and stay as they are.
func narrow(t tensor.Tensor) (bool, error) {
	size := t.Source.Size()
	if size > scanLimit {
		return false, nil
	}
	buf := make([]byte, min(size, 1<<16))
	for at := int64(0); at < size; at += int64(len(buf)) {
		part := buf[:min(int64(len(buf)), size-at)]
		if err := tensor.ReadExact(t.Source, part, at); err != nil {
			return false, fmt.Errorf("read tensor %q: %w", t.Name, err)
		}
		for i := 0; i+8 <= len(part); i += 8 {
			if !holds(tensor.I32, int64(binary.LittleEndian.Uint64(part[i:]))) {
				return false, nil
			}
		}
	}
	return true, nil
}

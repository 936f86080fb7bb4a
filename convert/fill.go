package convert

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// pieceElements is how many elements are converted at a time: their floats and
// bytes stay in a core's second-level cache.
const pieceElements = 64 << 10

// counts is what the workers report about one tensor; read it when they are done.
type counts struct {
	overflow atomic.Int64 // numbers or block scales that became infinite
	fallback atomic.Int64 // blocks quantized without weights
	cut      atomic.Int64 // integers that lost high bits
}

func (c *counts) add(s quant.Stats) {
	c.overflow.Add(s.Overflow)
	c.fallback.Add(s.Fallback)
}

// floatFill converts a tensor through float32.
//
// Memory: one piece of floats and of stored bytes, whatever the tensor's size;
// a whole row where a block depends on its whole row.
type floatFill struct {
	source  tensor.Source
	floats  tensor.FloatSource // source, if it gives floats
	from    *quant.Codec
	to      *quant.Codec
	cols    int64
	rows    int64     // rows of one matrix
	unit    int64     // elements of the smallest piece
	weights []float32 // nil, or one row for all matrices, or one for each
	exact   bool      // ggml's bytes even where they decode wrongly
	counts  *counts
}

// newFloatFill returns the Filler for a tensor of the given shape. Weights are
// those of imatrix.Entry.Weights: rows of cols.
func newFloatFill(t tensor.Tensor, shape []int64, to tensor.DType, weights []float32, exact bool, c *counts) (*floatFill, error) {
	info := tensor.Info{Name: t.Name, DType: to, Shape: shape}
	f := &floatFill{
		source: t.Source, from: quant.Lookup(t.DType), to: quant.Lookup(to),
		cols: info.Cols(), rows: 1, exact: exact, counts: c,
	}
	if len(shape) >= 2 {
		f.rows = shape[len(shape)-2]
	}
	if t.DType == tensor.F32 {
		f.floats, _ = t.Source.(tensor.FloatSource)
	}
	if !f.from.CanDequantize || !f.to.CanQuantize {
		return nil, fmt.Errorf("tensor %q: %s cannot be converted to %s", t.Name, t.DType, to)
	}
	if f.to.UsesWeights {
		f.weights = weights
	}
	f.unit = max(t.DType.Block(), to.Block())
	if f.to.RowScoped && f.weights != nil {
		f.unit = max(f.cols, f.unit)
	}
	elements, err := info.Elements()
	if err != nil {
		return nil, err
	}
	if elements%f.unit != 0 {
		return nil, fmt.Errorf("tensor %q: %d elements are not a number of blocks of %d", t.Name, elements, f.unit)
	}
	return f, nil
}

// Unit returns the bytes of the smallest piece.
func (f *floatFill) Unit() int64 { return f.outBytes(f.unit) }

func (f *floatFill) outBytes(n int64) int64 {
	return n / f.to.DType.Block() * f.to.DType.BlockBytes()
}

func (f *floatFill) inBytes(n int64) int64 {
	return n / f.from.DType.Block() * f.from.DType.BlockBytes()
}

// piece is the most elements converted at a time, a number of units.
func (f *floatFill) piece() int64 { return max(pieceElements/f.unit, 1) * f.unit }

// Scratch returns the bytes that filling n units takes.
func (f *floatFill) Scratch(n int64) int64 {
	piece := min(n*f.unit, f.piece())
	if f.floats != nil {
		return 4 * piece
	}
	return 4*piece + f.inBytes(piece) + 64
}

// Fill converts units [first, first+n).
func (f *floatFill) Fill(ctx context.Context, dst []byte, first, n int64, s *writer.Scratch) error {
	at, end := first*f.unit, (first+n)*f.unit
	for at < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		count := min(f.piece(), end-at)
		floats := s.Floats(0, count)
		if err := f.read(floats, at, s); err != nil {
			return err
		}
		size := f.outBytes(count)
		if err := f.convert(dst[:size], floats, at); err != nil {
			return err
		}
		dst = dst[size:]
		at += count
	}
	return nil
}

// read fills dst with the elements from at on.
func (f *floatFill) read(dst []float32, at int64, s *writer.Scratch) error {
	if f.floats != nil {
		return f.floats.ReadFloats(dst, at)
	}
	raw := s.Bytes(1, f.inBytes(int64(len(dst))))
	if err := tensor.ReadExact(f.source, raw, f.inBytes(at)); err != nil {
		return err
	}
	return f.from.Dequantize(dst, raw)
}

// convert quantizes floats that begin at element at: whole rows where there are
// weights, or one run where rows do not matter.
func (f *floatFill) convert(dst []byte, src []float32, at int64) error {
	if f.weights == nil {
		return f.quantize(dst, src, 1, int64(len(src)), nil, at)
	}
	for len(src) > 0 {
		col := at % f.cols
		rows, width := int64(1), min(f.cols-col, int64(len(src)))
		if col == 0 && width == f.cols {
			// As many whole rows of one matrix as there are.
			inMatrix := f.rows - at/f.cols%f.rows
			rows = min(int64(len(src))/f.cols, inMatrix)
			if int64(len(f.weights)) == f.cols {
				rows = int64(len(src)) / f.cols
			}
		}
		w := f.row(at)[col : col+width]
		size := f.outBytes(rows * width)
		if err := f.quantize(dst[:size], src[:rows*width], rows, width, w, at); err != nil {
			return err
		}
		dst, src, at = dst[size:], src[rows*width:], at+rows*width
	}
	return nil
}

// row returns the weights of the row that element at is in.
func (f *floatFill) row(at int64) []float32 {
	if int64(len(f.weights)) == f.cols {
		return f.weights
	}
	m := at / f.cols / f.rows
	return f.weights[m*f.cols : (m+1)*f.cols]
}

func (f *floatFill) quantize(dst []byte, src []float32, rows, cols int64, weights []float32, at int64) error {
	run := f.to.Quantize
	if f.exact {
		run = f.to.QuantizeExact
	}
	stats, err := run(dst, src, rows, cols, weights)
	f.counts.add(stats)
	var bad *quant.NonFiniteError
	if errors.As(err, &bad) {
		// Rows of the call are not rows of the tensor.
		where := at + bad.Row*cols + bad.Col
		return fmt.Errorf("to %s: %w", f.to.DType, &quant.NonFiniteError{Row: where / f.cols, Col: where % f.cols, Value: bad.Value})
	}
	return err
}

// rawFill passes stored bytes on that do not lie in one run of a file.
type rawFill struct {
	source tensor.Source
	unit   int64 // bytes of a block
}

func (f *rawFill) Unit() int64         { return f.unit }
func (f *rawFill) Scratch(int64) int64 { return 0 }

func (f *rawFill) Fill(_ context.Context, dst []byte, first, n int64, _ *writer.Scratch) error {
	return tensor.ReadExact(f.source, dst, first*f.unit)
}

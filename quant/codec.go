package quant

import (
	"errors"
	"fmt"
	"math"

	"github.com/sdtool/sdtool/tensor"
)

// ErrNeedsWeights is returned for a type that ggml quantizes only with an
// importance matrix, when none was given.
var ErrNeedsWeights = errors.New("needs an importance matrix")

// ErrUnsupported is wrapped where a type cannot be converted in the wanted direction.
var ErrUnsupported = errors.New("conversion not supported")

// ErrAborts is returned by QuantizeExact where ggml has no bytes: a grid search
// that meets numbers so large that no distance is finite ends the process.
var ErrAborts = errors.New("ggml cannot quantize numbers this large with these weights")

// NonFiniteError reports an input number that no block can hold.
type NonFiniteError struct {
	Row, Col int64 // from 0
	Value    float32
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("found %v in row %d, column %d: cannot quantize it", e.Value, e.Row, e.Col)
}

// WeightError reports a column weight that is negative or not a number.
type WeightError struct {
	Col   int64
	Value float32
}

func (e *WeightError) Error() string {
	return fmt.Sprintf("found importance %v in column %d: want a finite number, not negative", e.Value, e.Col)
}

// Stats counts what a conversion could not do in the usual way.
type Stats struct {
	Fallback int64 // blocks quantized with equal weights, because theirs were zero
	Overflow int64 // numbers, or scales of blocks, that became infinite in f16
}

// Add adds counts.
func (s *Stats) Add(other Stats) {
	s.Fallback += other.Fallback
	s.Overflow += other.Overflow
}

// rowFunc quantizes blocks of one row. qw is nil or has a weight for each column.
type rowFunc func(dst []byte, src, qw []float32, h how)

// how tells a rowFunc what its row does not.
type how struct {
	exact  bool    // ggml's bytes also where they are known to decode wrongly
	sigma2 float32 // mean square of the whole row, for row-scoped types with weights
	aborts *bool   // set when ggml would end the process
}

// Codec converts one type. Its methods may be called from many goroutines.
type Codec struct {
	DType tensor.DType
	// CanQuantize and CanDequantize say which directions exist.
	CanQuantize, CanDequantize bool
	// NeedsWeights: without weights, Quantize fails with ErrNeedsWeights.
	NeedsWeights bool
	// UsesWeights: weights change the bytes.
	UsesWeights bool
	// RowScoped: with weights, a block's bytes depend on its whole row.
	RowScoped bool

	block, bytes int64
	quantize     rowFunc
	dequantize   func(dst []float32, src []byte)
	// scales are the offsets of a block's f16 scales, to tell overflow.
	scales []int
	// sub is the number of elements that a weight sum is looked at over.
	sub int
	// overflows counts finite numbers that became infinite, for plain types.
	overflows func(dst []byte, src []float32) int64
	// bounded keeps kernels from numbers of farBits and more.
	bounded bool
	// lost tells the blocks of which ggml's bytes decode wrongly.
	lost func(x []float32) bool
}

// Lookup returns the codec of a type; one with neither direction if the type is
// not made of numbers that float32 can stand for.
func Lookup(d tensor.DType) *Codec {
	if int(d) < len(codecs) && codecs[d] != nil {
		return codecs[d]
	}
	return &Codec{DType: d, block: 1, bytes: 1}
}

// codecs is the one table of conversions, by type.
var codecs = buildTable()

type traits struct {
	q      rowFunc
	d      func([]float32, []byte)
	flags  flags
	scales []int
	sub    int
	over   func([]byte, []float32) int64
	lost   func(x []float32) bool
}

type flags uint8

const (
	usesWeights flags = 1 << iota
	needsWeights
	rowScoped
	bounded
)

func buildTable() []*Codec {
	rows := map[tensor.DType]traits{
		tensor.F32:    {q: quantizeF32, d: dequantizeF32},
		tensor.F16:    {q: quantizeF16, d: dequantizeF16, over: overflowsF16},
		tensor.BF16:   {q: quantizeBF16, d: dequantizeBF16, over: overflowsBF16},
		tensor.F64:    {q: quantizeF64, d: dequantizeF64},
		tensor.I8:     {d: dequantizeI8},
		tensor.I16:    {d: dequantizeI16},
		tensor.I32:    {d: dequantizeI32},
		tensor.I64:    {d: dequantizeI64},
		tensor.Bool:   {d: dequantizeU8},
		tensor.U8:     {d: dequantizeU8},
		tensor.U16:    {d: dequantizeU16},
		tensor.U32:    {d: dequantizeU32},
		tensor.U64:    {d: dequantizeU64},
		tensor.F8E4M3: {q: quantizeE4M3, d: dequantizeE4M3, over: overflowsE4M3},
		tensor.F8E5M2: {q: quantizeE5M2, d: dequantizeE5M2, over: overflowsE5M2},
		tensor.F8E8M0: {d: dequantizeE8M0},
		tensor.F4E2M1: {d: dequantizeE2M1},

		tensor.Q4_0:    {q: quantizeQ4_0, d: dequantizeQ4_0, flags: usesWeights | rowScoped, scales: []int{0}, sub: 32},
		tensor.Q4_1:    {q: quantizeQ4_1, d: dequantizeQ4_1, flags: usesWeights | rowScoped, scales: []int{0, 2}, sub: 32},
		tensor.Q5_0:    {q: quantizeQ5_0, d: dequantizeQ5_0, flags: usesWeights | rowScoped, scales: []int{0}, sub: 32},
		tensor.Q5_1:    {q: quantizeQ5_1, d: dequantizeQ5_1, flags: usesWeights | rowScoped, scales: []int{0, 2}, sub: 32},
		tensor.Q8_0:    {q: quantizeQ8_0, d: dequantizeQ8_0, scales: []int{0}},
		tensor.Q8_1:    {d: dequantizeQ8_1},
		tensor.Q8_K:    {d: dequantizeQ8_K},
		tensor.Q1_0:    {q: quantizeQ1_0, d: dequantizeQ1_0, scales: []int{0}},
		tensor.Q2_0:    {q: quantizeQ2_0, d: dequantizeQ2_0, scales: []int{0}},
		tensor.TQ1_0:   {q: quantizeTQ1_0, d: dequantizeTQ1_0, scales: []int{52}},
		tensor.TQ2_0:   {q: quantizeTQ2_0, d: dequantizeTQ2_0, scales: []int{64}},
		tensor.MXFP4:   {q: quantizeMXFP4, d: dequantizeMXFP4},
		tensor.NVFP4:   {q: quantizeNVFP4, d: dequantizeNVFP4, flags: bounded, over: overflowsNVFP4},
		tensor.Q2_K:    {q: quantizeQ2_K, d: dequantizeQ2_K, flags: usesWeights, scales: []int{80, 82}, sub: 16},
		tensor.Q3_K:    {q: quantizeQ3_K, d: dequantizeQ3_K, flags: usesWeights, scales: []int{108}, sub: 16},
		tensor.Q4_K:    {q: quantizeQ4_K, d: dequantizeQ4_K, flags: usesWeights, scales: []int{0, 2}, sub: 32},
		tensor.Q5_K:    {q: quantizeQ5_K, d: dequantizeQ5_K, flags: usesWeights, scales: []int{0, 2}, sub: 32},
		tensor.Q6_K:    {q: quantizeQ6_K, d: dequantizeQ6_K, flags: usesWeights, scales: []int{208}, sub: 16},
		tensor.IQ4_NL:  {q: quantizeIQ4_NL, d: dequantizeIQ4_NL, flags: usesWeights, scales: []int{0}, sub: 32},
		tensor.IQ4_XS:  {q: quantizeIQ4_XS, d: dequantizeIQ4_XS, flags: usesWeights, scales: []int{0}, sub: 32},
		tensor.IQ2_XXS: {q: quantizeIQ2_XXS, d: dequantizeIQ2_XXS, flags: bounded | usesWeights | needsWeights, scales: []int{0}, sub: 32},
		tensor.IQ2_XS:  {q: quantizeIQ2_XS, d: dequantizeIQ2_XS, flags: bounded | usesWeights | needsWeights, scales: []int{0}, sub: 16},
		tensor.IQ2_S:   {q: quantizeIQ2_S, d: dequantizeIQ2_S, flags: bounded | usesWeights, scales: []int{0}, sub: 16},
		tensor.IQ3_XXS: {q: quantizeIQ3_XXS, d: dequantizeIQ3_XXS, flags: bounded | usesWeights, scales: []int{0}, sub: 32},
		tensor.IQ3_S:   {q: quantizeIQ3_S, d: dequantizeIQ3_S, flags: bounded | usesWeights, scales: []int{0}, sub: 32, lost: hasZeroSub},
		tensor.IQ1_S:   {q: quantizeIQ1_S, d: dequantizeIQ1_S, flags: bounded | usesWeights | needsWeights, scales: []int{0}, sub: 32},
		tensor.IQ1_M:   {q: quantizeIQ1_M, d: dequantizeIQ1_M, flags: bounded | usesWeights, scales: []int{spreadScale}, sub: 16},
	}
	table := make([]*Codec, len(tensor.All())+1)
	for d, t := range rows {
		table[d] = &Codec{
			DType: d, CanQuantize: t.q != nil, CanDequantize: t.d != nil,
			NeedsWeights: t.flags&needsWeights != 0, UsesWeights: t.flags&usesWeights != 0, RowScoped: t.flags&rowScoped != 0,
			block: d.Block(), bytes: d.BlockBytes(), quantize: t.q, dequantize: t.d, scales: t.scales, sub: t.sub, overflows: t.over, lost: t.lost, bounded: t.flags&bounded != 0,
		}
	}
	return table
}

// Quantize converts rows of cols float32 each to the type and writes them to
// dst. weights is nil or holds cols non-negative numbers that hold for every
// row; types that do not use weights ignore them. See the package's
// documentation for how it differs from QuantizeExact.
//
// For quantized types the error is a *NonFiniteError if src holds NaN or an
// infinity; dst is then not touched. The plain float types carry those over.
func (c *Codec) Quantize(dst []byte, src []float32, rows, cols int64, weights []float32) (Stats, error) {
	return c.run(dst, src, rows, cols, weights, false)
}

// QuantizeExact is Quantize with the very bytes of ggml, also where they decode
// wrongly. It too refuses what makes ggml abort.
func (c *Codec) QuantizeExact(dst []byte, src []float32, rows, cols int64, weights []float32) (Stats, error) {
	return c.run(dst, src, rows, cols, weights, true)
}

func (c *Codec) run(dst []byte, src []float32, rows, cols int64, weights []float32, exact bool) (Stats, error) {
	var stats Stats
	if err := c.check(dst, src, rows, cols, weights); err != nil {
		return stats, err
	}
	src = src[:rows*cols]
	size := cols / c.block * c.bytes
	dst = dst[:rows*size]
	if c.DType.IsQuantized() {
		if at := nonFinite(src); at >= 0 {
			return stats, &NonFiniteError{Row: int64(at) / cols, Col: int64(at) % cols, Value: src[at]}
		}
	}
	if !c.UsesWeights {
		weights = nil
	}
	take := c.kernel(src, weights)
	if take != nil {
		take(dst, src, int(rows), int(cols), weights)
	}
	weak := c.weakBlocks(weights, exact)
	aborts := new(bool)
	for r := range rows {
		row, out := src[r*cols:(r+1)*cols], dst[r*size:(r+1)*size]
		h := how{exact: exact, aborts: aborts}
		if take == nil {
			h.sigma2 = c.meanSquare(row, weights)
			c.quantize(out, row, weights, h)
			if *aborts && exact {
				return stats, fmt.Errorf("row %d to %s: %w", r, c.DType, ErrAborts)
			}
		}
		if !exact {
			stats.Fallback += c.mend(out, row, weights, weak, h, take != nil)
		}
		stats.Overflow += c.overflow(out, row)
	}
	return stats, nil
}

// kernel returns what is hooked for the call, or nil. Kernels of types marked
// bounded get no huge numbers: they do not watch for what makes ggml abort, nor for
// distances that only rounding makes equal.
func (c *Codec) kernel(src, weights []float32) quantizeKernel {
	fast := fastest(c.DType)
	take := fast.plain
	if weights != nil {
		take = fast.weighted
	}
	if take != nil && c.bounded && countFrom(src, farBits)+countFrom(weights, farBits) > 0 {
		return nil
	}
	return take
}

// farBits are the bits of 2^32. With numbers and weights below it no squared and
// weighted distance of a group overflows, and nvfp4's levels, at most 2688 and 896
// apart at the end, keep their distances from a number apart.
const farBits = 0x4f800000

// meanSquare is what row-scoped types need of a row.
func (c *Codec) meanSquare(row, weights []float32) float32 {
	if weights == nil || !c.RowScoped || len(row) == 0 {
		return 0
	}
	return sumSquares(row) / float32(len(row))
}

// RowSum adds the squares of the next part of a row to sum, the result for the
// parts before it, 0 for the first. See QuantizePart.
func RowSum(sum float32, part []float32) float32 { return addSquares(sum, part) }

// QuantizePart is Quantize, or with exact QuantizeExact, for a part of one row:
// any number of whole blocks. rowSum is RowSum over the whole row, which has
// cols numbers; only types with RowScoped look at it. The Row of a
// NonFiniteError is 0, its Col counts from the part's start.
func (c *Codec) QuantizePart(dst []byte, src, weights []float32, cols int64, rowSum float32, exact bool) (Stats, error) {
	n := int64(len(src))
	if !c.RowScoped || weights == nil {
		return c.run(dst, src, 1, n, weights, exact)
	}
	var stats Stats
	if err := c.check(dst, src, 1, n, weights); err != nil {
		return stats, err
	}
	if at := nonFinite(src); at >= 0 {
		return stats, &NonFiniteError{Col: int64(at), Value: src[at]}
	}
	dst = dst[:n/c.block*c.bytes]
	h := how{exact: exact, sigma2: rowSum / float32(cols), aborts: new(bool)}
	c.quantize(dst, src, weights, h)
	if !exact {
		stats.Fallback = c.mend(dst, src, weights, c.weakBlocks(weights, false), h, false)
	}
	stats.Overflow = c.overflow(dst, src)
	return stats, nil
}

// check refuses arguments that do not fit together.
func (c *Codec) check(dst []byte, src []float32, rows, cols int64, weights []float32) error {
	if !c.CanQuantize {
		return fmt.Errorf("%w: float32 to %s", ErrUnsupported, c.DType)
	}
	if rows < 0 || cols < 0 || cols%c.block != 0 {
		return fmt.Errorf("%w: %d columns, %s has blocks of %d", tensor.ErrBlock, cols, c.DType, c.block)
	}
	if int64(len(src)) < rows*cols || int64(len(dst)) < rows*cols/c.block*c.bytes {
		return fmt.Errorf("quantize %d rows of %d to %s: %d floats in, room for %d bytes", rows, cols, c.DType, len(src), len(dst))
	}
	if !c.UsesWeights {
		return nil
	}
	if weights == nil {
		if c.NeedsWeights {
			return fmt.Errorf("%s %w", c.DType, ErrNeedsWeights)
		}
		return nil
	}
	if int64(len(weights)) != cols {
		return fmt.Errorf("quantize to %s: %d weights for %d columns", c.DType, len(weights), cols)
	}
	for i, w := range weights {
		if !(w >= 0) || math.IsInf(float64(w), 1) {
			return &WeightError{Col: int64(i), Value: w}
		}
	}
	return nil
}

// Dequantize converts blocks to float32. len(dst) must be a number of whole
// blocks, and src must hold that many.
func (c *Codec) Dequantize(dst []float32, src []byte) error {
	if !c.CanDequantize {
		return fmt.Errorf("%w: %s to float32", ErrUnsupported, c.DType)
	}
	n := int64(len(dst))
	if n%c.block != 0 || int64(len(src)) < n/c.block*c.bytes {
		return fmt.Errorf("dequantize %s: %d bytes for %d numbers", c.DType, len(src), n)
	}
	src = src[:n/c.block*c.bytes]
	if decode := fastest(c.DType).decode; decode != nil {
		decode(dst, src)
	} else {
		c.dequantize(dst, src)
	}
	return nil
}

// nonFinite returns the index of the first NaN or infinity, or -1.
func nonFinite(src []float32) int {
	if countFrom(src, infinity) == 0 {
		return -1
	}
	for i, v := range src {
		if math.Float32bits(v)&infinity == infinity {
			return i
		}
	}
	return -1
}

// infinity is the bits of +Inf.
const infinity = 0x7f800000

// countFrom counts the numbers whose size, as float32 bits, is limit or more.
func countFrom(src []float32, limit uint32) int64 {
	if scan := fastest(tensor.Invalid).scan; scan != nil {
		return scan(src, limit)
	}
	n := int64(0)
	for _, v := range src {
		// 1 in the top bit if limit-1 - size is negative.
		n += int64((limit - 1 - math.Float32bits(v)&0x7fffffff) >> 31)
	}
	return n
}

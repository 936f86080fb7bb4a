package scaled

import (
	"fmt"

	"github.com/sdtool/sdtool/tensor"
)

// grid knows where the scales of a weight's rows are. A row is a run of the
// last axis; all other axes together count the rows.
type grid interface {
	// load reads the scales of rows [from, to).
	load(from, to int64) (scales, error)
}

// scales are those of some rows.
type scales interface {
	// times multiplies dst, which holds columns of a row from col on.
	times(dst []float32, row, col int64)
}

// broadcast is a scale that repeats along some axes of the weight.
type broadcast struct {
	scale   *tensor.Tensor
	axes    []int64 // the weight's axes but the last
	strides []int64 // of the scale along them, in elements
	cols    int64   // of the weight
	perCol  bool    // the scale has its own value for every column
}

// newBroadcast fits a scale to a weight's shape: one element for all, one per
// index of the first axis ([rows], [rows,1], …), or by numpy's rules.
func newBroadcast(shape []int64, scale *tensor.Tensor) (*broadcast, bool) {
	g := &broadcast{scale: scale, cols: tensor.Info{Shape: shape}.Cols()}
	if len(shape) > 0 {
		g.axes = shape[:len(shape)-1]
	}
	g.strides = make([]int64, len(g.axes))
	n, err := scale.Elements()
	if err != nil {
		return nil, false
	}
	switch {
	case n == 1:
		return g, true
	case len(shape) == 0:
		return nil, false
	case len(shape) > 1 && n == shape[0] && len(scale.Shape) > 0 && scale.Shape[0] == n:
		g.strides[0] = 1
		return g, true
	}
	return g, g.numpy(shape, scale.Shape)
}

// numpy sets the strides of a scale that is aligned with the weight's last axes.
func (g *broadcast) numpy(shape, scale []int64) bool {
	skip := len(shape) - len(scale)
	if skip < 0 {
		return false
	}
	stride := int64(1)
	for i := len(scale) - 1; i >= 0; i-- {
		axis := skip + i
		switch {
		case scale[i] == 1:
			continue
		case scale[i] != shape[axis]:
			return false
		case axis == len(shape)-1:
			g.perCol = true
		default:
			g.strides[axis] = stride
		}
		stride *= scale[i]
	}
	return true
}

// offset returns where the scales of a row begin.
func (g *broadcast) offset(row int64) int64 {
	at := int64(0)
	for i := len(g.axes) - 1; i >= 0; i-- {
		at += row % g.axes[i] * g.strides[i]
		row /= g.axes[i]
	}
	return at
}

func (g *broadcast) span() int64 {
	if g.perCol {
		return g.cols
	}
	return 1
}

// loadedBroadcast holds the scales of rows from first on: row i's begin at
// offsets[i-first] of values.
type loadedBroadcast struct {
	first   int64
	offsets []int64
	values  []float32
	perCol  bool
}

func (g *broadcast) load(from, to int64) (scales, error) {
	out := &loadedBroadcast{first: from, offsets: make([]int64, to-from), perCol: g.perCol}
	low, high := g.offset(from), int64(0)
	for i := range out.offsets {
		out.offsets[i] = g.offset(from + int64(i))
		low, high = min(low, out.offsets[i]), max(high, out.offsets[i])
	}
	span := g.span()
	if high-low+span <= 2*span*(to-from)+1024 { // close together: one read
		var err error
		if out.values, err = readFloats(g.scale, low, high-low+span); err != nil {
			return nil, err
		}
		for i := range out.offsets {
			out.offsets[i] -= low
		}
		return out, nil
	}
	for i, at := range out.offsets {
		v, err := readFloats(g.scale, at, span)
		if err != nil {
			return nil, err
		}
		out.offsets[i] = int64(len(out.values))
		out.values = append(out.values, v...)
	}
	return out, nil
}

func (s *loadedBroadcast) times(dst []float32, row, col int64) {
	values := s.values[s.offsets[row-s.first]:]
	if !s.perCol {
		multiply(dst, values[0])
		return
	}
	for i, v := range values[col : col+int64(len(dst))] {
		dst[i] *= v
	}
}

func multiply(dst []float32, by float32) {
	for i := range dst {
		dst[i] *= by
	}
}

// tiles is one scale for each tile of height×width.
type tiles struct {
	scale         *tensor.Tensor
	height, width int64
	perRow        int64
}

func newTiles(scale *tensor.Tensor, height, width int64) *tiles {
	return &tiles{scale: scale, height: height, width: width, perRow: scale.Shape[1]}
}

type loadedTiles struct {
	*tiles
	first  int64 // row of tiles
	values []float32
}

func (g *tiles) load(from, to int64) (scales, error) {
	first, last := from/g.height, (to-1)/g.height
	values, err := readFloats(g.scale, first*g.perRow, (last-first+1)*g.perRow)
	return &loadedTiles{tiles: g, first: first, values: values}, err
}

func (s *loadedTiles) times(dst []float32, row, col int64) {
	values := s.values[(row/s.height-s.first)*s.perRow:]
	for len(dst) > 0 {
		n := min(s.width-col%s.width, int64(len(dst)))
		multiply(dst[:n], values[col/s.width])
		dst, col = dst[n:], col+n
	}
}

// Tile of the layout in which cuBLAS wants block scales: 128 rows by 4 blocks,
// stored as 32×4×4 (cuBLAS documentation, "1D block scaling factors layout").
const (
	swizzleRows  = 128
	swizzleCols  = 4
	swizzleBytes = swizzleRows * swizzleCols
)

// blocks is one byte-sized scale for each run of width columns of a row.
type blocks struct {
	scale     *tensor.Tensor
	rows      int64
	perRow    int64 // blocks in a row
	width     int64
	swizzled  bool
	exponents bool           // bytes are powers of two (E8M0), else E4M3
	zero      bool           // exponent byte 0 means 0, as in comfy-kitchen, not 2^-127
	global    *tensor.Tensor // multiplies every scale, or nil
}

// blockGrid checks the scale's shape: [rows, blocks], or padded to whole tiles
// where the scales are swizzled.
func blockGrid(name string, rows, perRow, width int64, scale *tensor.Tensor, swizzled bool) (*blocks, error) {
	want := []int64{rows, perRow}
	if swizzled {
		want = []int64{roundUp(rows, swizzleRows), roundUp(perRow, swizzleCols)}
	}
	if n, err := scale.Elements(); err != nil || n != want[0]*want[1] {
		return nil, &SchemeError{name, fmt.Sprintf("block scales %q of shape %s, want %s", scale.Name, tensor.ShapeString(scale.Shape), tensor.ShapeString(want))}
	}
	return &blocks{scale: scale, rows: rows, perRow: perRow, width: width, swizzled: swizzled}, nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

type loadedBlocks struct {
	*blocks
	first  int64 // row that raw begins with
	raw    []byte
	values *[256]float32
}

func (g *blocks) load(from, to int64) (scales, error) {
	values, err := g.table()
	if err != nil {
		return nil, err
	}
	stride := g.perRow
	if g.swizzled {
		from, to = from/swizzleRows*swizzleRows, roundUp(to, swizzleRows)
		stride = roundUp(g.perRow, swizzleCols)
	}
	raw := make([]byte, (to-from)*stride)
	return &loadedBlocks{blocks: g, first: from, raw: raw, values: values}, readBytes(g.scale, raw, from*stride)
}

// table gives the factor of every scale byte.
func (g *blocks) table() (*[256]float32, error) {
	dtype := tensor.F8E4M3
	if g.exponents {
		dtype = tensor.F8E8M0
	}
	table, err := byteValues(dtype)
	if err != nil {
		return nil, err
	}
	if g.zero {
		table[0] = 0
	}
	if g.global != nil {
		by, err := readFloats(g.global, 0, 1)
		if err != nil {
			return nil, err
		}
		multiply(table[:], by[0])
	}
	return table, nil
}

func (s *loadedBlocks) times(dst []float32, row, col int64) {
	for len(dst) > 0 {
		n := min(s.width-col%s.width, int64(len(dst)))
		multiply(dst[:n], s.values[s.raw[s.at(row-s.first, col/s.width)]])
		dst, col = dst[n:], col+n
	}
}

// at returns the place of a scale in raw, whose first row is row 0 here.
func (s *loadedBlocks) at(row, block int64) int64 {
	if !s.swizzled {
		return row*s.perRow + block
	}
	tile := row/swizzleRows*(roundUp(s.perRow, swizzleCols)/swizzleCols) + block/swizzleCols
	return tile*swizzleBytes + row%32*16 + row%swizzleRows/32*4 + block%swizzleCols
}

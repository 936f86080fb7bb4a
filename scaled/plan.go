package scaled

import (
	"fmt"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// plan is everything needed to compute a weight's rows.
type plan struct {
	scheme     Scheme
	stored     tensor.Tensor
	shape      []int64 // logical
	codes      codes
	grid       grid
	rotate     int64 // group size of the rotation to undo, or 0
	companions []*tensor.Tensor
}

// plan decides the scheme of a weight of small numbers; nil means it has none.
func (d *decoder) plan(t tensor.Tensor, base string, c *config) (*plan, error) {
	if c != nil && c.Format != "" {
		return d.planComfy(t, base, c)
	}
	if d.get(base+endScale2) != nil {
		return d.planNVFP4(t, base, false)
	}
	scale, companions, err := d.scale(base)
	if err != nil {
		return nil, err
	}
	inv := d.get(base + endScaleInv)
	bare := d.get(base + endBare)
	if t.DType != tensor.F8E4M3 && t.DType != tensor.F8E5M2 {
		bare = nil // a tensor called scale beside an integer weight may be a norm's
	}
	if err := oneOf(t.Name, scale, inv, bare); err != nil {
		return nil, err
	}
	switch {
	case scale != nil && (t.DType == tensor.U8 || t.DType == tensor.F4E2M1):
		return nil, &SchemeError{t.Name, fmt.Sprintf("dtype %s with %q of dtype %s and no %s: no scheme that sdtool knows", t.DType, scale.Name, scale.DType, endScale2)}
	case scale != nil && isExponents(t, scale):
		return d.planMXFP8(t, base, scale, false)
	case scale != nil:
		return planBroadcast(t, scale, companions)
	case inv != nil:
		return planBlocks(t, inv, 0, FP8Block)
	case bare != nil:
		return planBlocks(t, bare, 0, FP8Block)
	}
	return nil, nil
}

// oneOf refuses a weight with several kinds of scales: which one counts is not ours to guess.
func oneOf(name string, scales ...*tensor.Tensor) error {
	var found []string
	for _, s := range scales {
		if s != nil {
			found = append(found, s.Name)
		}
	}
	if len(found) > 1 {
		return &SchemeError{name, fmt.Sprintf("has more than one kind of scale: %s", strings.Join(found, ", "))}
	}
	return nil
}

// isExponents tells MXFP8's power-of-two scales from plain ones: they are of a
// dtype that holds nothing else, or bytes beside fp8 with one for 32 columns.
func isExponents(t tensor.Tensor, scale *tensor.Tensor) bool {
	if scale.DType == tensor.F8E8M0 {
		return true
	}
	return scale.DType == tensor.U8 && t.DType != tensor.I8
}

func (d *decoder) planComfy(t tensor.Tensor, base string, c *config) (*plan, error) {
	if c.Format == "nvfp4" {
		return d.planNVFP4(t, base, true)
	}
	scale, companions, err := d.scale(base)
	if err != nil {
		return nil, err
	}
	if scale == nil {
		return nil, &SchemeError{t.Name, fmt.Sprintf("format %q without %s", c.Format, base+endScale)}
	}
	t, err = storedAs(t, c.Format)
	if err != nil {
		return nil, err
	}
	switch c.Format {
	case "float8_e4m3fn", "float8_e4m3fn_rowwise", "float8_e5m2":
		return planBroadcast(t, scale, companions)
	case "float8_e4m3fn_blockwise":
		return planBlocks(t, scale, c.GroupSize, FP8Block)
	case "int8_blockwise":
		return planBlocks(t, scale, c.GroupSize, INT8Bloc)
	case "mxfp8":
		return d.planMXFP8(t, base, scale, true)
	}
	return planINT8(t, scale, companions, c)
}

// comfyStorage gives the dtype that the codes of a format are in.
var comfyStorage = map[string]tensor.DType{
	"float8_e4m3fn":           tensor.F8E4M3,
	"float8_e4m3fn_rowwise":   tensor.F8E4M3,
	"float8_e4m3fn_blockwise": tensor.F8E4M3,
	"float8_e5m2":             tensor.F8E5M2,
	"mxfp8":                   tensor.F8E4M3,
	"int8_tensorwise":         tensor.I8,
	"int8_blockwise":          tensor.I8,
}

// storedAs checks the weight's dtype against the format. Files may keep fp8
// codes in U8.
func storedAs(t tensor.Tensor, format string) (tensor.Tensor, error) {
	want, ok := comfyStorage[format]
	if !ok {
		return t, &SchemeError{t.Name, fmt.Sprintf("format %q is not one that sdtool knows", format)}
	}
	if t.DType == tensor.U8 && want.IsFloat() {
		t.DType = want
	}
	if t.DType != want {
		return t, &SchemeError{t.Name, fmt.Sprintf("format %q with codes of dtype %s, want %s", format, t.DType, want)}
	}
	return t, nil
}

func planINT8(t tensor.Tensor, scale *tensor.Tensor, companions []*tensor.Tensor, c *config) (*plan, error) {
	p, err := planBroadcast(t, scale, companions)
	if err != nil || !c.ConvRot {
		return p, err
	}
	group := c.RotGroup
	if group == 0 {
		group = defaultRotGroup
	}
	if !powerOf4(group) || t.Cols()%group != 0 {
		return nil, &SchemeError{t.Name, fmt.Sprintf("convrot_groupsize %d: want a power of 4 that divides the %d columns", group, t.Cols())}
	}
	p.scheme, p.rotate = INT8Rot, group
	return p, nil
}

func powerOf4(n int64) bool { return n >= 1 && n&(n-1) == 0 && n&0x5555555555555555 != 0 }

// planBroadcast handles scales of one element, one per output row, or any shape
// that numpy would broadcast to the weight's.
func planBroadcast(t tensor.Tensor, scale *tensor.Tensor, companions []*tensor.Tensor) (*plan, error) {
	if !scale.DType.IsFloat() {
		return nil, &SchemeError{t.Name, fmt.Sprintf("scale %q is %s, want a float type", scale.Name, scale.DType)}
	}
	g, ok := newBroadcast(t.Shape, scale)
	if !ok {
		return nil, &SchemeError{t.Name, fmt.Sprintf("shape %s with scale %q of shape %s: want one element, one per row (%s), or a shape that broadcasts",
			tensor.ShapeString(t.Shape), scale.Name, tensor.ShapeString(scale.Shape), tensor.ShapeString(t.Shape[:min(1, len(t.Shape))]))}
	}
	scheme := FP8
	if t.DType == tensor.I8 {
		scheme = INT8
	}
	return &plan{scheme: scheme, stored: t, shape: t.Shape, codes: newCodes(t.DType, false), grid: g, companions: companions}, nil
}

// planBlocks handles one scale per tile of a matrix. A block size of 0 is read
// off the shapes.
func planBlocks(t tensor.Tensor, scale *tensor.Tensor, size int64, scheme Scheme) (*plan, error) {
	n, err := scale.Elements()
	if err != nil {
		return nil, err
	}
	if n == 1 && scale.DType.IsFloat() { // one tile
		return planBroadcast(t, scale, []*tensor.Tensor{scale})
	}
	bad := func(want string) error {
		return &SchemeError{t.Name, fmt.Sprintf("shape %s with block scales %q of shape %s: want %s", tensor.ShapeString(t.Shape), scale.Name, tensor.ShapeString(scale.Shape), want)}
	}
	if len(t.Shape) != 2 || len(scale.Shape) != 2 {
		return nil, bad("two matrices")
	}
	if !scale.DType.IsFloat() {
		return nil, &SchemeError{t.Name, fmt.Sprintf("scale %q is %s, want a float type", scale.Name, scale.DType)}
	}
	var tile [2]int64
	for axis := range tile {
		if tile[axis] = tileSize(t.Shape[axis], scale.Shape[axis], size); tile[axis] == 0 {
			if size > 0 {
				return nil, bad(fmt.Sprintf("one scale for each %d of axis %d, the last may be partial", size, axis))
			}
			return nil, bad(fmt.Sprintf("tiles of one size along axis %d", axis))
		}
	}
	return &plan{scheme: scheme, stored: t, shape: t.Shape, codes: newCodes(t.DType, false),
		grid: newTiles(scale, tile[0], tile[1]), companions: []*tensor.Tensor{scale}}, nil
}

// tileSize returns the size of n tiles that cover length (the last may be
// partial): the wanted one, else 128, else the only power of two that fits; 0 if
// none does.
func tileSize(length, n, want int64) int64 {
	fits := func(size int64) bool { return (length+size-1)/size == n }
	if want > 0 {
		if fits(want) {
			return want
		}
		return 0
	}
	if fits(128) {
		return 128
	}
	found := int64(0)
	for size := int64(1); size <= max(length, 1); size *= 2 {
		if fits(size) {
			if found != 0 {
				return 0
			}
			found = size
		}
	}
	return found
}

// Block lengths along a row.
const (
	mxBlock = 32
	nvBlock = 16
)

func (d *decoder) planMXFP8(t tensor.Tensor, base string, scale *tensor.Tensor, comfy bool) (*plan, error) {
	if len(t.Shape) != 2 || t.Cols()%mxBlock != 0 {
		return nil, &SchemeError{t.Name, fmt.Sprintf("shape %s: mxfp8 wants a matrix with rows of whole blocks of %d", tensor.ShapeString(t.Shape), mxBlock)}
	}
	if scale.DType != tensor.F8E8M0 && scale.DType != tensor.U8 {
		return nil, &SchemeError{t.Name, fmt.Sprintf("mxfp8 scale %q is %s, want f8_e8m0 or u8", scale.Name, scale.DType)}
	}
	g, err := blockGrid(t.Name, t.Shape[0], t.Cols()/mxBlock, mxBlock, scale, comfy)
	if err != nil {
		return nil, err
	}
	g.exponents, g.zero = true, comfy
	return &plan{scheme: MXFP8, stored: t, shape: t.Shape, codes: newCodes(t.DType, false), grid: g, companions: []*tensor.Tensor{scale}}, nil
}

func (d *decoder) planNVFP4(t tensor.Tensor, base string, comfy bool) (*plan, error) {
	scale, global := d.get(base+endScale), d.get(base+endScale2)
	switch {
	case scale == nil || global == nil:
		return nil, &SchemeError{t.Name, fmt.Sprintf("nvfp4 wants both %s and %s", base+endScale, base+endScale2)}
	case t.DType != tensor.U8 && t.DType != tensor.F4E2M1:
		return nil, &SchemeError{t.Name, fmt.Sprintf("dtype %s with %s: want two 4-bit codes a byte in u8", t.DType, endScale2)}
	case scale.DType != tensor.F8E4M3:
		return nil, &SchemeError{t.Name, fmt.Sprintf("nvfp4 scale %q is %s, want f8_e4m3", scale.Name, scale.DType)}
	case len(t.Shape) != 2:
		return nil, &SchemeError{t.Name, fmt.Sprintf("shape %s: nvfp4 wants a matrix", tensor.ShapeString(t.Shape))}
	}
	if n, err := global.Elements(); err != nil || n != 1 || !global.DType.IsFloat() {
		return nil, &SchemeError{t.Name, fmt.Sprintf("nvfp4 scale %q is %s %s, want one float", global.Name, global.DType, tensor.ShapeString(global.Shape))}
	}
	shape := []int64{t.Shape[0], t.Shape[1]}
	if t.DType == tensor.U8 {
		shape[1] *= 2
	}
	if shape[1]%nvBlock != 0 {
		return nil, &SchemeError{t.Name, fmt.Sprintf("%d columns: nvfp4 wants whole blocks of %d", shape[1], nvBlock)}
	}
	g, err := blockGrid(t.Name, shape[0], shape[1]/nvBlock, nvBlock, scale, comfy)
	if err != nil {
		return nil, err
	}
	g.global = global
	return &plan{scheme: NVFP4, stored: t, shape: shape, codes: newCodes(tensor.F4E2M1, comfy), grid: g,
		companions: []*tensor.Tensor{scale, global}}, nil
}

package native

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/sdtool/sdtool/tensor"
)

// ErrUnsupported is wrapped when the library cannot do a conversion.
var ErrUnsupported = errors.New("not supported by the ggml library")

// ErrNeedsWeights is wrapped when a type is quantized only with an importance matrix.
var ErrNeedsWeights = errors.New("type needs an importance matrix")

type typeFuncs struct {
	version         func() string                                                                            `c:"const char * ggml_version(void)"`
	commit          func() string                                                                            `c:"const char * ggml_commit(void)"`
	typeName        func(t int32) string                                                                     `c:"const char * ggml_type_name(enum ggml_type type)"`
	typeSize        func(t int32) uintptr                                                                    `c:"size_t ggml_type_size(enum ggml_type type)"`
	blckSize        func(t int32) int64                                                                      `c:"int64_t ggml_blck_size(enum ggml_type type)"`
	requiresImatrix func(t int32) bool                                                                       `c:"bool ggml_quantize_requires_imatrix(enum ggml_type type)"`
	validateRowData func(t int32, data unsafe.Pointer, n uintptr) bool                                       `c:"bool ggml_validate_row_data(enum ggml_type type, const void * data, size_t nbytes)"`
	typeTraits      func(t int32) *typeTraits                                                                `c:"const struct ggml_type_traits * ggml_get_type_traits(enum ggml_type type)"`
	quantizeChunk   func(t int32, src *float32, dst *byte, start, rows, cols int64, weight *float32) uintptr `c:"size_t ggml_quantize_chunk(enum ggml_type type, const float * src, void * dst, int64_t start, int64_t nrows, int64_t n_per_row, const float * imatrix)"`
}

// typeTraits mirrors struct ggml_type_traits.
type typeTraits struct {
	_         *byte // name
	block     int64
	_         int64 // interleave
	size      uintptr
	quantized bool
	toFloat   uintptr // void (*)(const void * x, float * y, int64_t k)
	_         uintptr // from_float: void (*)(const float * x, void * y, int64_t k)
}

// HasType reports whether the library knows ggml's type id.
func (l *Library) HasType(id int32) bool { return l.types[id].name != "" }

// TypeName returns ggml's name of a type id, "" if it does not know it.
func (l *Library) TypeName(id int32) string { return l.types[id].name }

// BlockSize returns the elements per block of a type id, 0 if unknown.
func (l *Library) BlockSize(id int32) int64 { return l.types[id].block }

// TypeSize returns the bytes per block of a type id, 0 if unknown.
func (l *Library) TypeSize(id int32) int64 { return l.types[id].bytes }

// RequiresImatrix reports whether ggml refuses to quantize to the type without
// an importance matrix.
func (l *Library) RequiresImatrix(id int32) bool { return l.HasType(id) && l.c.requiresImatrix(id) }

// CanQuantize reports whether ggml_quantize_chunk has a case for the type; it
// ends the process for the others.
func (l *Library) CanQuantize(t tensor.DType) bool {
	id, ok := t.GGML()
	if !ok || !l.HasType(id) {
		return false
	}
	switch t {
	case tensor.F32, tensor.F16, tensor.BF16:
		return true
	case tensor.Q8_1, tensor.Q8_K:
		return false // kinds of activations, never of weights
	}
	return t.IsQuantized()
}

// QuantizeChunk converts nrows rows of cols floats to the type with ggml's own
// code and returns the bytes written to dst. imatrix is nil or holds one weight
// per column. The i-quants end the process when they meet values that are not
// finite, so those are refused here.
func (l *Library) QuantizeChunk(t tensor.DType, src []float32, dst []byte, nrows, cols int64, imatrix []float32) (int64, error) {
	id, _ := t.GGML()
	if !l.CanQuantize(t) {
		return 0, fmt.Errorf("quantize to %s: %w", t, ErrUnsupported)
	}
	info := tensor.Info{DType: t, Shape: []int64{nrows, cols}}
	elems, err := info.Elements()
	if err != nil {
		return 0, fmt.Errorf("quantize to %s: %w", t, err)
	}
	size, err := info.Bytes()
	switch {
	case err != nil:
		return 0, fmt.Errorf("quantize to %s: %w", t, err)
	case elems == 0:
		return 0, nil
	case int64(len(src)) < elems:
		return 0, fmt.Errorf("quantize to %s: source has %d elements, %d rows of %d need %d", t, len(src), nrows, cols, elems)
	case int64(len(dst)) < size:
		return 0, fmt.Errorf("quantize to %s: destination has %d bytes, %d are needed", t, len(dst), size)
	case imatrix != nil && int64(len(imatrix)) != cols:
		return 0, fmt.Errorf("quantize to %s: %d weights for %d columns", t, len(imatrix), cols)
	case imatrix == nil && l.RequiresImatrix(id):
		return 0, fmt.Errorf("quantize to %s: %w", t, ErrNeedsWeights)
	}
	if t.IsQuantized() {
		if i := firstNonFinite(src[:elems]); i >= 0 {
			return 0, fmt.Errorf("quantize to %s: value %v at row %d, column %d is not finite", t, src[i], int64(i)/cols, int64(i)%cols)
		}
		if i := firstNonFinite(imatrix); i >= 0 {
			return 0, fmt.Errorf("quantize to %s: weight %v of column %d is not finite", t, imatrix[i], i)
		}
	}
	n := l.c.quantizeChunk(id, unsafe.SliceData(src), unsafe.SliceData(dst), 0, nrows, cols, unsafe.SliceData(imatrix))
	return int64(n), nil
}

func firstNonFinite(x []float32) int {
	for i, v := range x {
		if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
			return i
		}
	}
	return -1
}

// ToFloat decodes whole blocks of a type with ggml's own code. dst gets as many
// values as src holds; F32 is copied.
func (l *Library) ToFloat(t tensor.DType, src []byte, dst []float32) error {
	id, ok := t.GGML()
	if !ok || !l.HasType(id) {
		return fmt.Errorf("decode %s: %w", t, ErrUnsupported)
	}
	blocks := int64(len(src)) / t.BlockBytes()
	elems := blocks * t.Block()
	if int64(len(src)) != blocks*t.BlockBytes() || int64(len(dst)) < elems {
		return fmt.Errorf("decode %s: %d bytes do not fill %d values: blocks have %d bytes and %d elements",
			t, len(src), len(dst), t.BlockBytes(), t.Block())
	}
	if elems == 0 {
		return nil
	}
	if t == tensor.F32 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*elems), src)
		return nil
	}
	fn := l.types[id].traits.toFloat
	if fn == 0 {
		return fmt.Errorf("decode %s: %w", t, ErrUnsupported)
	}
	purego.SyscallN(fn, uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(elems))
	return nil
}

package native

import (
	"fmt"
	"unsafe"

	"github.com/sdtool/sdtool/tensor"
)

type contextFuncs struct {
	tensorOverhead func() uintptr                                                        `c:"size_t ggml_tensor_overhead(void)"`
	init           func(p initParams) *cContext                                          `c:"struct ggml_context * ggml_init(struct ggml_init_params params)"`
	free           func(ctx *cContext)                                                   `c:"void ggml_free(struct ggml_context * ctx)"`
	newTensor      func(ctx *cContext, t int32, dims int32, ne *[maxDims]int64) *cTensor `c:"struct ggml_tensor * ggml_new_tensor(struct ggml_context * ctx, enum ggml_type type, int n_dims, const int64_t * ne)"`
	setName        func(t *cTensor, name string) *cTensor                                `c:"struct ggml_tensor * ggml_set_name(struct ggml_tensor * tensor, const char * name)"`
	mulMat         func(ctx *cContext, a, b *cTensor) *cTensor                           `c:"struct ggml_tensor * ggml_mul_mat(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b)"`
}

const (
	maxDims   = 4
	maxSrc    = 10
	maxName   = 64
	opParams  = 64 / 4
	objectLen = 32 // struct ggml_object, which precedes each tensor in a context
)

// initParams mirrors struct ggml_init_params, with its trailing padding.
type initParams struct {
	memSize uintptr
	memory  unsafe.Pointer
	noAlloc bool
	_       [7]byte
}

type cContext struct{ _ [1]byte }

// cTensor mirrors struct ggml_tensor. It always lies in C's memory.
type cTensor struct {
	typ      int32
	_        [4]byte
	buffer   *cBuffer
	ne       [maxDims]int64
	nb       [maxDims]uintptr
	op       int32
	opParams [opParams]int32
	flags    int32
	src      [maxSrc]*cTensor
	viewSrc  *cTensor
	viewOffs uintptr
	data     unsafe.Pointer
	name     [maxName]byte
	extra    unsafe.Pointer
	_        [8]byte
}

type cBuffer struct{ _ [1]byte }

// checkLayout makes tensors of known shape, name and operands and reads them
// back through cTensor.
func (l *Library) checkLayout() error {
	const size = unsafe.Sizeof(cTensor{})
	if got := l.c.tensorOverhead(); got != size+objectLen {
		return fmt.Errorf("%w: a tensor takes %d bytes, expected %d", ErrMismatch, got, size+objectLen)
	}
	ctx := l.c.init(initParams{memSize: 8 * (size + objectLen), noAlloc: true})
	if ctx == nil {
		return fmt.Errorf("%w: it cannot make a context", ErrMismatch)
	}
	defer l.c.free(ctx)
	f16, _ := tensor.F16.GGML()
	a := l.c.newTensor(ctx, f16, maxDims, &[maxDims]int64{6, 3, 5, 7})
	b := l.c.newTensor(ctx, 0, maxDims, &[maxDims]int64{6, 4, 5, 7})
	l.c.setName(a, "handshake")
	m := l.c.mulMat(ctx, a, b)
	switch {
	case a.typ != f16, a.ne != [maxDims]int64{6, 3, 5, 7}, a.nb != [maxDims]uintptr{2, 12, 36, 180}:
	case cString(a.name[:]) != "handshake", a.op != 0, a.data != nil, a.buffer != nil, a.viewSrc != nil:
	case m.src[0] != a, m.src[1] != b, m.op == 0, m.ne != [maxDims]int64{3, 4, 5, 7}, m.typ != 0:
	default:
		return nil
	}
	return fmt.Errorf("%w: struct ggml_tensor does not have the expected layout", ErrMismatch)
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

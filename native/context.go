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
	graphOverhead  func(nodes uintptr, grads bool) uintptr                               `c:"size_t ggml_graph_overhead_custom(size_t size, bool grads)"`
	setInput       func(t *cTensor)                                                      `c:"void ggml_set_input(struct ggml_tensor * tensor)"`
	setOutput      func(t *cTensor)                                                      `c:"void ggml_set_output(struct ggml_tensor * tensor)"`
	setName        func(t *cTensor, name string) *cTensor                                `c:"struct ggml_tensor * ggml_set_name(struct ggml_tensor * tensor, const char * name)"`
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
	_       unsafe.Pointer
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
	ctx := l.c.init(initParams{memSize: 16 * (size + objectLen), noAlloc: true})
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
		l.opMulMat = m.op
		return l.checkMulMatID(ctx, a)
	}
	return fmt.Errorf("%w: struct ggml_tensor does not have the expected layout", ErrMismatch)
}

// checkMulMatID learns the number of the op that multiplies by chosen matrices;
// ops have no stable numbers.
func (l *Library) checkMulMatID(ctx *cContext, experts *cTensor) error {
	i32, _ := tensor.I32.GGML()
	as := l.c.newTensor(ctx, experts.typ, maxDims, &[maxDims]int64{6, 3, 5, 1})
	b := l.c.newTensor(ctx, 0, maxDims, &[maxDims]int64{6, 1, 4, 1})
	ids := l.c.newTensor(ctx, i32, maxDims, &[maxDims]int64{2, 4, 1, 1})
	m := l.c.mulMatID(ctx, as, b, ids)
	if m.src[2] != ids || m.op == l.opMulMat || m.ne != [maxDims]int64{3, 2, 4, 1} {
		return fmt.Errorf("%w: struct ggml_tensor does not have the expected layout", ErrMismatch)
	}
	l.opMulMatID = m.op
	return nil
}

func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// Context owns the descriptions of tensors and graphs, not their data. It
// keeps the first error of the ops built in it: after one, further ops do
// nothing and return the zero Tensor, so that model code need not check each
// step. Not for use from several goroutines.
type Context struct {
	lib   *Library
	c     *cContext
	limit int // tensors it has room for
	count int
	scope string
	err   error
}

// NewContext makes a context with room for the given number of tensors and for
// one graph of as many nodes.
func (l *Library) NewContext(tensors int) (*Context, error) {
	size := uintptr(tensors+1)*l.c.tensorOverhead() + l.c.graphOverhead(uintptr(tensors), false)
	c := l.c.init(initParams{memSize: size, noAlloc: true})
	if c == nil {
		return nil, fmt.Errorf("make a context for %d tensors: %w", tensors, ErrOutOfMemory)
	}
	return &Context{lib: l, c: c, limit: tensors}, nil
}

// Close frees the context; its tensors and graphs are gone.
func (c *Context) Close() {
	if c.c != nil {
		c.lib.c.free(c.c)
		c.c = nil
	}
}

// Err returns the first error of an op built in this context.
func (c *Context) Err() error { return c.err }

// SetScope names the part of the model whose ops follow, for errors and for
// the report should ggml abort.
func (c *Context) SetScope(name string) {
	c.scope = name
	c.lib.setActivity("building " + name)
}

// fail keeps the first error.
func (c *Context) fail(op, format string, args ...any) Tensor {
	if c.err == nil {
		where := ""
		if c.scope != "" {
			where = c.scope + ": "
		}
		c.err = fmt.Errorf("%s%s: %w", where, op, fmt.Errorf(format, args...))
	}
	return Tensor{}
}

// New makes a tensor without data: an input or a weight. Up to four axes,
// innermost first.
func (c *Context) New(d tensor.DType, ne ...int64) Tensor {
	const op = "new tensor"
	id, ok := d.GGML()
	if !ok || !c.lib.HasType(id) {
		return c.fail(op, "type %s: %w", d, ErrUnsupported)
	}
	if len(ne) < 1 || len(ne) > maxDims {
		return c.fail(op, "%d axes, expected 1 to %d", len(ne), maxDims)
	}
	full := [maxDims]int64{1, 1, 1, 1}
	copy(full[:], ne)
	shape := []int64{full[3], full[2], full[1], full[0]}
	info := tensor.Info{DType: d, Shape: shape}
	if _, err := info.Bytes(); err != nil {
		return c.fail(op, "%s %v: %w", d, ne, err)
	}
	if !c.ready(op, 1) {
		return Tensor{}
	}
	return Tensor{c.lib.c.newTensor(c.c, id, int32(len(ne)), &full)}
}

// SetName names a tensor; ggml keeps at most 63 bytes.
func (c *Context) SetName(t Tensor, name string) {
	if t.c != nil {
		c.lib.c.setName(t.c, name)
	}
}

// SetInput marks a tensor that is filled before the graph runs, SetOutput one
// that is read after: the allocator must not reuse their memory.
func (c *Context) SetInput(t Tensor) {
	if t.c != nil {
		c.lib.c.setInput(t.c)
	}
}

// SetOutput marks a tensor whose data is read after the graph has run.
func (c *Context) SetOutput(t Tensor) {
	if t.c != nil {
		c.lib.c.setOutput(t.c)
	}
}

// ready reports whether n more tensors may be made.
func (c *Context) ready(op string, n int) bool {
	if c.err != nil {
		return false
	}
	if c.count+n > c.limit {
		c.fail(op, "the context has room for %d tensors only", c.limit)
		return false
	}
	c.count += n
	return true
}

// Fail makes the context fail with an error of the caller's, unless it has
// failed already; the scope is put before it.
func (c *Context) Fail(err error) {
	if c.err != nil {
		return
	}
	if c.scope != "" {
		err = fmt.Errorf("%s: %w", c.scope, err)
	}
	c.err = err
}

package native

import (
	"math"

	"github.com/sdtool/sdtool/tensor"
)

type opFuncs struct {
	mulMat     func(ctx *cContext, a, b *cTensor) *cTensor                                                    `c:"struct ggml_tensor * ggml_mul_mat(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b)"`
	mulMatID   func(ctx *cContext, as, b, ids *cTensor) *cTensor                                              `c:"struct ggml_tensor * ggml_mul_mat_id(struct ggml_context * ctx, struct ggml_tensor * as, struct ggml_tensor * b, struct ggml_tensor * ids)"`
	setPrec    func(a *cTensor, prec int32)                                                                   `c:"void ggml_mul_mat_set_prec(struct ggml_tensor * a, enum ggml_prec prec)"`
	add        func(ctx *cContext, a, b *cTensor) *cTensor                                                    `c:"struct ggml_tensor * ggml_add(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b)"`
	sub        func(ctx *cContext, a, b *cTensor) *cTensor                                                    `c:"struct ggml_tensor * ggml_sub(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b)"`
	mul        func(ctx *cContext, a, b *cTensor) *cTensor                                                    `c:"struct ggml_tensor * ggml_mul(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b)"`
	scale      func(ctx *cContext, a *cTensor, s float32) *cTensor                                            `c:"struct ggml_tensor * ggml_scale(struct ggml_context * ctx, struct ggml_tensor * a, float s)"`
	silu       func(ctx *cContext, a *cTensor) *cTensor                                                       `c:"struct ggml_tensor * ggml_silu(struct ggml_context * ctx, struct ggml_tensor * a)"`
	gelu       func(ctx *cContext, a *cTensor) *cTensor                                                       `c:"struct ggml_tensor * ggml_gelu(struct ggml_context * ctx, struct ggml_tensor * a)"`
	geluQuick  func(ctx *cContext, a *cTensor) *cTensor                                                       `c:"struct ggml_tensor * ggml_gelu_quick(struct ggml_context * ctx, struct ggml_tensor * a)"`
	sigmoid    func(ctx *cContext, a *cTensor) *cTensor                                                       `c:"struct ggml_tensor * ggml_sigmoid(struct ggml_context * ctx, struct ggml_tensor * a)"`
	tanh       func(ctx *cContext, a *cTensor) *cTensor                                                       `c:"struct ggml_tensor * ggml_tanh(struct ggml_context * ctx, struct ggml_tensor * a)"`
	relu       func(ctx *cContext, a *cTensor) *cTensor                                                       `c:"struct ggml_tensor * ggml_relu(struct ggml_context * ctx, struct ggml_tensor * a)"`
	norm       func(ctx *cContext, a *cTensor, eps float32) *cTensor                                          `c:"struct ggml_tensor * ggml_norm(struct ggml_context * ctx, struct ggml_tensor * a, float eps)"`
	rmsNorm    func(ctx *cContext, a *cTensor, eps float32) *cTensor                                          `c:"struct ggml_tensor * ggml_rms_norm(struct ggml_context * ctx, struct ggml_tensor * a, float eps)"`
	groupNorm  func(ctx *cContext, a *cTensor, groups int32, eps float32) *cTensor                            `c:"struct ggml_tensor * ggml_group_norm(struct ggml_context * ctx, struct ggml_tensor * a, int n_groups, float eps)"`
	softMaxExt func(ctx *cContext, a, mask *cTensor, scale, maxBias float32) *cTensor                         `c:"struct ggml_tensor * ggml_soft_max_ext(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * mask, float scale, float max_bias)"`
	getRows    func(ctx *cContext, a, b *cTensor) *cTensor                                                    `c:"struct ggml_tensor * ggml_get_rows(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b)"`
	im2col     func(ctx *cContext, a, b *cTensor, s0, s1, p0, p1, d0, d1 int32, is2D bool, d int32) *cTensor  `c:"struct ggml_tensor * ggml_im2col(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b, int s0, int s1, int p0, int p1, int d0, int d1, bool is_2D, enum ggml_type dst_type)"`
	reshape    func(ctx *cContext, a *cTensor, ne0, ne1, ne2, ne3 int64) *cTensor                             `c:"struct ggml_tensor * ggml_reshape_4d(struct ggml_context * ctx, struct ggml_tensor * a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3)"`
	view       func(ctx *cContext, a *cTensor, ne0, ne1, ne2, ne3 int64, nb1, nb2, nb3, off uintptr) *cTensor `c:"struct ggml_tensor * ggml_view_4d(struct ggml_context * ctx, struct ggml_tensor * a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3, size_t nb1, size_t nb2, size_t nb3, size_t offset)"`
	permute    func(ctx *cContext, a *cTensor, a0, a1, a2, a3 int32) *cTensor                                 `c:"struct ggml_tensor * ggml_permute(struct ggml_context * ctx, struct ggml_tensor * a, int axis0, int axis1, int axis2, int axis3)"`
	cont       func(ctx *cContext, a *cTensor) *cTensor                                                       `c:"struct ggml_tensor * ggml_cont(struct ggml_context * ctx, struct ggml_tensor * a)"`
	cast       func(ctx *cContext, a *cTensor, d int32) *cTensor                                              `c:"struct ggml_tensor * ggml_cast(struct ggml_context * ctx, struct ggml_tensor * a, enum ggml_type type)"`
	concat     func(ctx *cContext, a, b *cTensor, dim int32) *cTensor                                         `c:"struct ggml_tensor * ggml_concat(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b, int dim)"`
	repeat     func(ctx *cContext, a *cTensor, ne0, ne1, ne2, ne3 int64) *cTensor                             `c:"struct ggml_tensor * ggml_repeat_4d(struct ggml_context * ctx, struct ggml_tensor * a, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3)"`
	upscale    func(ctx *cContext, a *cTensor, factor, mode int32) *cTensor                                   `c:"struct ggml_tensor * ggml_upscale(struct ggml_context * ctx, struct ggml_tensor * a, int scale_factor, enum ggml_scale_mode mode)"`
	timestep   func(ctx *cContext, a *cTensor, dim, period int32) *cTensor                                    `c:"struct ggml_tensor * ggml_timestep_embedding(struct ggml_context * ctx, struct ggml_tensor * timesteps, int dim, int max_period)"`
	clamp      func(ctx *cContext, a *cTensor, low, high float32) *cTensor                                    `c:"struct ggml_tensor * ggml_clamp(struct ggml_context * ctx, struct ggml_tensor * a, float min, float max)"`
	flashAttn  func(ctx *cContext, q, k, v, mask *cTensor, scale, bias, cap float32) *cTensor                 `c:"struct ggml_tensor * ggml_flash_attn_ext(struct ggml_context * ctx, struct ggml_tensor * q, struct ggml_tensor * k, struct ggml_tensor * v, struct ggml_tensor * mask, float scale, float max_bias, float logit_softcap)"`
}

const precF32 = 10 // GGML_PREC_F32

// operands reports whether an op may be built: no error so far, room in the
// context, and every operand there.
func (c *Context) operands(op string, ts ...Tensor) bool {
	if c.err != nil {
		return false
	}
	for i, t := range ts {
		if t.c == nil {
			c.fail(op, "operand %d is no tensor", i)
			return false
		}
	}
	return c.ready(op, 1)
}

// floats reports whether every operand is f32 with unbroken rows, which is what
// most ops take.
func (c *Context) floats(op string, ts ...Tensor) bool {
	if !c.operands(op, ts...) {
		return false
	}
	for i, t := range ts {
		if t.DType() != tensor.F32 || !t.contiguousRows() {
			c.fail(op, "operand %d is %s with strides %v, expected f32 with contiguous rows", i, t, t.NB())
			return false
		}
	}
	return true
}

// MulMat returns b·aᵀ: a [k, m, …], b [k, n, …] give [m, n, …]; the outer axes
// of b are multiples of a's. a is any type with contiguous rows, b is f32, or
// f16 or bf16 if a is the same. The result is f32.
func (c *Context) MulMat(a, b Tensor) Tensor {
	const op = "mul_mat"
	if !c.operands(op, a, b) || !c.product(op, a, b) {
		return Tensor{}
	}
	an, bn := a.c.ne, b.c.ne
	if bn[2]%an[2] != 0 || bn[3]%an[3] != 0 {
		return c.fail(op, "%s by %s: outer axes do not divide", a, b)
	}
	return Tensor{c.lib.c.mulMat(c.c, a.c, b.c)}
}

// MulMatF32 is MulMat with the backend told to accumulate in f32.
func (c *Context) MulMatF32(a, b Tensor) Tensor {
	t := c.MulMat(a, b)
	if t.c != nil {
		c.lib.c.setPrec(t.c, precF32)
	}
	return t
}

// product checks what both kinds of matrix product ask of their operands.
func (c *Context) product(op string, a, b Tensor) bool {
	sameHalf := b.DType() == a.DType() && (a.DType() == tensor.F16 || a.DType() == tensor.BF16)
	switch {
	case a.c.ne[0] != b.c.ne[0]:
		c.fail(op, "%s by %s: rows of %d and %d", a, b, a.c.ne[0], b.c.ne[0])
	case !a.contiguousRows() || a.c.nb[0] > a.c.nb[1]:
		c.fail(op, "left operand %s with strides %v: rows are not contiguous", a, a.NB())
	case b.DType() != tensor.F32 && !sameHalf:
		c.fail(op, "%s by %s: right operand must be f32", a, b)
	case !b.contiguousRows():
		c.fail(op, "right operand %s with strides %v: rows are not contiguous", b, b.NB())
	case !(a.DType().IsQuantized() || a.DType().IsFloat() && a.DType() != tensor.F64):
		c.fail(op, "left operand %s: %w", a, ErrUnsupported)
	default:
		return true
	}
	return false
}

// MulMatID multiplies by chosen matrices: as [k, m, experts], b [k, r, n], ids
// i32 [used, n] with used a multiple of r; gives [m, used, n]. The caller sees
// to it that ids lie in [0, experts).
func (c *Context) MulMatID(as, b, ids Tensor) Tensor {
	const op = "mul_mat_id"
	if !c.operands(op, as, b, ids) || !c.product(op, as, b) {
		return Tensor{}
	}
	an, bn, in := as.c.ne, b.c.ne, ids.c.ne
	switch {
	case ids.DType() != tensor.I32:
		return c.fail(op, "ids are %s, expected i32", ids)
	case b.DType() != tensor.F32:
		return c.fail(op, "right operand %s: expected f32", b)
	case an[3] != 1 || bn[3] != 1 || in[2] != 1 || in[3] != 1 || in[1] != bn[2] || in[0]%bn[1] != 0:
		return c.fail(op, "shapes %v, %v and ids %v do not go together", an, bn, in)
	}
	return Tensor{c.lib.c.mulMatID(c.c, as.c, b.c, ids.c)}
}

// Add returns a+b, Sub a-b and Mul a·b, b being repeated along axes where it is
// shorter.
func (c *Context) Add(a, b Tensor) Tensor { return c.binary("add", c.lib.c.add, a, b) }

// Sub returns a-b; see Add.
func (c *Context) Sub(a, b Tensor) Tensor { return c.binary("sub", c.lib.c.sub, a, b) }

// Mul returns a·b, element by element; see Add.
func (c *Context) Mul(a, b Tensor) Tensor { return c.binary("mul", c.lib.c.mul, a, b) }

func (c *Context) binary(op string, f func(*cContext, *cTensor, *cTensor) *cTensor, a, b Tensor) Tensor {
	if !c.floats(op, a, b) {
		return Tensor{}
	}
	for i := range maxDims {
		if b.c.ne[i] == 0 || a.c.ne[i]%b.c.ne[i] != 0 {
			return c.fail(op, "%s cannot be repeated to %s", b, a)
		}
	}
	return Tensor{f(c.c, a.c, b.c)}
}

// Scale returns a·s.
func (c *Context) Scale(a Tensor, s float32) Tensor {
	if !c.contiguous("scale", a) {
		return Tensor{}
	}
	// ggml_scale looks at the strides of axes of length one too.
	if nb, ne := a.c.nb, a.c.ne; nb[2] != nb[1]*uintptr(ne[1]) || nb[3] != nb[2]*uintptr(ne[2]) {
		return c.fail("scale", "%s with strides %v: reshape it first", a, a.NB())
	}
	return Tensor{c.lib.c.scale(c.c, a.c, s)}
}

// contiguous reports whether a is an f32 tensor without gaps.
func (c *Context) contiguous(op string, a Tensor) bool {
	if !c.floats(op, a) {
		return false
	}
	if !a.Contiguous() {
		c.fail(op, "%s with strides %v is not contiguous", a, a.NB())
		return false
	}
	return true
}

func (c *Context) unary(op string, f func(*cContext, *cTensor) *cTensor, a Tensor) Tensor {
	if !c.contiguous(op, a) {
		return Tensor{}
	}
	return Tensor{f(c.c, a.c)}
}

// SiLU returns x·sigmoid(x).
func (c *Context) SiLU(a Tensor) Tensor { return c.unary("silu", c.lib.c.silu, a) }

// GELU returns the tanh approximation of x·Φ(x).
func (c *Context) GELU(a Tensor) Tensor { return c.unary("gelu", c.lib.c.gelu, a) }

// GELUQuick returns x·sigmoid(1.702 x).
func (c *Context) GELUQuick(a Tensor) Tensor { return c.unary("gelu_quick", c.lib.c.geluQuick, a) }

// Sigmoid returns 1/(1+exp(-x)).
func (c *Context) Sigmoid(a Tensor) Tensor { return c.unary("sigmoid", c.lib.c.sigmoid, a) }

// Tanh returns the hyperbolic tangent.
func (c *Context) Tanh(a Tensor) Tensor { return c.unary("tanh", c.lib.c.tanh, a) }

// ReLU returns max(x, 0).
func (c *Context) ReLU(a Tensor) Tensor { return c.unary("relu", c.lib.c.relu, a) }

// Norm brings each row to mean 0 and variance 1.
func (c *Context) Norm(a Tensor, eps float32) Tensor {
	if !c.floats("norm", a) {
		return Tensor{}
	}
	return Tensor{c.lib.c.norm(c.c, a.c, eps)}
}

// RMSNorm divides each row by its root mean square.
func (c *Context) RMSNorm(a Tensor, eps float32) Tensor {
	if !c.floats("rms_norm", a) {
		return Tensor{}
	}
	return Tensor{c.lib.c.rmsNorm(c.c, a.c, eps)}
}

// GroupNorm normalises groups of channels of a [w, h, channels, n]: each group
// of each image gets mean 0 and variance 1.
func (c *Context) GroupNorm(a Tensor, groups int, eps float32) Tensor {
	const op = "group_norm"
	if !c.floats(op, a) {
		return Tensor{}
	}
	if groups < 1 || a.c.ne[2]%int64(groups) != 0 {
		return c.fail(op, "%d channels of %s in %d groups", a.c.ne[2], a, groups)
	}
	return Tensor{c.lib.c.groupNorm(c.c, a.c, int32(groups), eps)}
}

// SoftMax returns the softmax of each row of a·scale + mask; a zero mask is none.
func (c *Context) SoftMax(a, mask Tensor, scale float32) Tensor {
	const op = "soft_max"
	if !c.contiguous(op, a) {
		return Tensor{}
	}
	if mask.c != nil {
		m, n := mask.c.ne, a.c.ne
		if d := mask.DType(); d != tensor.F32 && d != tensor.F16 || !mask.Contiguous() {
			return c.fail(op, "mask is %s with strides %v, expected contiguous f32 or f16", mask, mask.NB())
		}
		if m[0] != n[0] || m[1] < n[1] || n[2]%m[2] != 0 || n[3]%m[3] != 0 {
			return c.fail(op, "mask %s does not fit %s", mask, a)
		}
	}
	return Tensor{c.lib.c.softMaxExt(c.c, a.c, mask.c, scale, 0)}
}

// GetRows picks rows of a [cols, rows, x, y] by i32 ids [n, x, y] as f32
// [cols, n, x, y]. The caller sees to it that ids lie in [0, rows).
func (c *Context) GetRows(a, ids Tensor) Tensor {
	const op = "get_rows"
	if !c.operands(op, a, ids) {
		return Tensor{}
	}
	an, in := a.c.ne, ids.c.ne
	if ids.DType() != tensor.I32 || an[2] != in[1] || an[3] != in[2] || in[3] != 1 || !a.contiguousRows() {
		return c.fail(op, "ids %s do not fit %s", ids, a)
	}
	if a.DType().IsInteger() || a.DType() == tensor.F64 {
		return c.fail(op, "rows of %s: %w", a, ErrUnsupported)
	}
	return Tensor{c.lib.c.getRows(c.c, a.c, ids.c)}
}

// Im2Col lays out the patches of b [w, h, channels, n] that a kernel [kw, kh,
// channels, out] sees: f16 [kw·kh·channels, outW, outH, n].
func (c *Context) Im2Col(kernel, b Tensor, stride, pad int) Tensor {
	const op = "im2col"
	if !c.operands(op, kernel, b) {
		return Tensor{}
	}
	k, n := kernel.c.ne, b.c.ne
	switch {
	case kernel.DType() != tensor.F16 || !kernel.Contiguous():
		return c.fail(op, "kernel is %s, expected contiguous f16", kernel)
	case b.DType() != tensor.F32 || !b.Contiguous():
		return c.fail(op, "image is %s with strides %v, expected contiguous f32", b, b.NB())
	case k[2] != n[2]:
		return c.fail(op, "kernel %s takes %d channels, image %s has %d", kernel, k[2], b, n[2])
	case stride < 1 || stride > math.MaxInt16 || pad < 0 || pad > math.MaxInt16 || n[0]+int64(2*pad) < k[0] || n[1]+int64(2*pad) < k[1]:
		return c.fail(op, "image %s is smaller than kernel %s (stride %d, padding %d)", b, kernel, stride, pad)
	}
	s, p := int32(stride), int32(pad)
	return Tensor{c.lib.c.im2col(c.c, kernel.c, b.c, s, s, p, p, 1, 1, true, kernel.c.typ)}
}

// Upscale repeats each pixel of a [w, h, …] factor times along both axes.
func (c *Context) Upscale(a Tensor, factor int) Tensor {
	const op = "upscale"
	if !c.floats(op, a) {
		return Tensor{}
	}
	if factor < 2 || factor > math.MaxInt16 {
		return c.fail(op, "factor %d", factor)
	}
	return Tensor{c.lib.c.upscale(c.c, a.c, int32(factor), 0)}
}

// TimestepEmbedding returns [dim, n] for n times: cosines of the time at
// falling frequencies, then sines.
func (c *Context) TimestepEmbedding(times Tensor, dim, period int) Tensor {
	const op = "timestep_embedding"
	if !c.contiguous(op, times) {
		return Tensor{}
	}
	if times.c.ne[0] != times.Elements() || dim < 2 || dim > math.MaxInt32 || period < 1 || period > math.MaxInt32 {
		return c.fail(op, "times %s, dimension %d, period %d", times, dim, period)
	}
	return Tensor{c.lib.c.timestep(c.c, times.c, int32(dim), int32(period))}
}

// Clamp bounds the elements.
func (c *Context) Clamp(a Tensor, low, high float32) Tensor {
	if !c.contiguous("clamp", a) {
		return Tensor{}
	}
	return Tensor{c.lib.c.clamp(c.c, a.c, low, high)}
}

// FlashAttention returns softmax(q·kᵀ·scale + mask)·v in one op: q [d, nq,
// heads, n], k and v [d, nk, heads of k, n]; gives [d, heads, nq, n]. k and v
// are f16; the mask, if any, is contiguous f16 [nk, nq or more, …].
func (c *Context) FlashAttention(q, k, v, mask Tensor, scale float32) Tensor {
	const op = "flash_attn_ext"
	if !c.operands(op, q, k, v) {
		return Tensor{}
	}
	qn, kn, vn := q.c.ne, k.c.ne, v.c.ne
	switch {
	case q.DType() != tensor.F32 || !q.contiguousRows() || k.DType() != tensor.F16 || v.DType() != tensor.F16 ||
		!k.contiguousRows() || !v.contiguousRows():
		return c.fail(op, "operands %s, %s and %s: expected f32, f16 and f16", q, k, v)
	case qn[0] != kn[0] || kn[1] != vn[1] || kn[2] != vn[2] || qn[2]%kn[2] != 0 || qn[3] != kn[3] || qn[3] != vn[3]:
		return c.fail(op, "shapes %v, %v and %v do not go together", qn, kn, vn)
	}
	if mask.c != nil {
		m := mask.c.ne
		if mask.DType() != tensor.F16 || !mask.Contiguous() || m[0] != kn[1] || m[1] < qn[1] || qn[2]%m[2] != 0 || qn[3]%m[3] != 0 {
			return c.fail(op, "mask %s does not fit %v and %v", mask, qn, kn)
		}
	}
	return Tensor{c.lib.c.flashAttn(c.c, q.c, k.c, v.c, mask.c, scale, 0, 0)}
}

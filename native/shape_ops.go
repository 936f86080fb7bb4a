package native

import "github.com/sdtool/sdtool/tensor"

// Reshape gives a contiguous tensor another shape over the same memory, up to
// four axes, innermost first.
func (c *Context) Reshape(a Tensor, ne ...int64) Tensor {
	const op = "reshape"
	if !c.operands(op, a) {
		return Tensor{}
	}
	full, ok := fourAxes(ne)
	elems, err := tensor.Elements(full[:])
	if !ok || err != nil || elems != a.Elements() || full[0]%a.DType().Block() != 0 {
		return c.fail(op, "%s to %v", a, ne)
	}
	if !a.Contiguous() {
		return c.fail(op, "%s with strides %v is not contiguous", a, a.NB())
	}
	return Tensor{c.lib.c.reshape(c.c, a.c, full[0], full[1], full[2], full[3])}
}

func fourAxes(ne []int64) (full [maxDims]int64, ok bool) {
	full = [maxDims]int64{1, 1, 1, 1}
	if len(ne) < 1 || len(ne) > maxDims {
		return full, false
	}
	copy(full[:], ne)
	for _, n := range full {
		if n < 1 {
			return full, false
		}
	}
	return full, true
}

// Slice is a view of elements [from, to) of one axis.
func (c *Context) Slice(a Tensor, axis int, from, to int64) Tensor {
	const op = "slice"
	if !c.operands(op, a) {
		return Tensor{}
	}
	if axis < 0 || axis >= maxDims || from < 0 || to <= from || to > a.c.ne[axis] ||
		axis == 0 && (from%a.DType().Block() != 0 || to%a.DType().Block() != 0) {
		return c.fail(op, "elements %d to %d of axis %d of %s", from, to, axis, a)
	}
	ne, nb := a.c.ne, a.c.nb
	ne[axis] = to - from
	step := nb[axis]
	if axis == 0 {
		from /= a.DType().Block()
		if !a.contiguousRows() {
			return c.fail(op, "%s with strides %v: rows are not contiguous", a, a.NB())
		}
	} else if !a.contiguousRows() {
		return c.fail(op, "%s with strides %v: rows are not contiguous", a, a.NB())
	}
	return Tensor{c.lib.c.view(c.c, a.c, ne[0], ne[1], ne[2], ne[3], nb[1], nb[2], nb[3], uintptr(from)*step)}
}

// Heads is a view that cuts the rows of a [width, n, …] into equal pieces, as
// attention does: [width/heads, heads, n, …]. The third axis must have room.
func (c *Context) Heads(a Tensor, heads int64) Tensor {
	const op = "heads"
	if !c.operands(op, a) {
		return Tensor{}
	}
	ne, nb := a.c.ne, a.c.nb
	if heads < 1 || ne[0]%heads != 0 || ne[3] != 1 || !a.contiguousRows() || a.DType().Block() != 1 {
		return c.fail(op, "%d heads of %s", heads, a)
	}
	width := ne[0] / heads
	size := uintptr(width) * uintptr(a.DType().BlockBytes())
	return Tensor{c.lib.c.view(c.c, a.c, width, heads, ne[1], ne[2], size, nb[1], nb[2], 0)}
}

// Permute is a view with axes in another place: axis i becomes axis to[i].
func (c *Context) Permute(a Tensor, to0, to1, to2, to3 int) Tensor {
	const op = "permute"
	if !c.operands(op, a) {
		return Tensor{}
	}
	var seen [maxDims]bool
	for _, axis := range [...]int{to0, to1, to2, to3} {
		if axis < 0 || axis >= maxDims || seen[axis] {
			return c.fail(op, "axes %d, %d, %d, %d are no permutation", to0, to1, to2, to3)
		}
		seen[axis] = true
	}
	return Tensor{c.lib.c.permute(c.c, a.c, int32(to0), int32(to1), int32(to2), int32(to3))}
}

// Cont copies into contiguous memory, or returns a itself when it already is.
func (c *Context) Cont(a Tensor) Tensor {
	const op = "cont"
	if c.err == nil && a.c != nil && a.Contiguous() {
		// Axes of length one may have any stride, at which ggml looks all the same.
		want := uintptr(a.DType().BlockBytes())
		for i := range maxDims {
			if a.c.nb[i] != want {
				return c.Reshape(a, a.c.ne[:]...)
			}
			want *= uintptr(a.c.ne[i])
			if i == 0 {
				want /= uintptr(a.DType().Block())
			}
		}
		return a
	}
	if !c.operands(op, a) {
		return Tensor{}
	}
	if d := a.DType(); d != tensor.F32 && d != tensor.F16 && d != tensor.BF16 && d != tensor.I32 {
		return c.fail(op, "%s: %w", a, ErrUnsupported)
	}
	return Tensor{c.lib.c.cont(c.c, a.c)}
}

// Cast converts between f32, f16 and bf16, and from quantized types to f32.
func (c *Context) Cast(a Tensor, d tensor.DType) Tensor {
	const op = "cast"
	if !c.operands(op, a) {
		return Tensor{}
	}
	plain := func(d tensor.DType) bool { return d == tensor.F32 || d == tensor.F16 || d == tensor.BF16 }
	if !(plain(a.DType()) && plain(d) || a.DType().IsQuantized() && d == tensor.F32) || !a.contiguousRows() {
		return c.fail(op, "%s to %s: %w", a, d, ErrUnsupported)
	}
	id, _ := d.GGML()
	return Tensor{c.lib.c.cast(c.c, a.c, id)}
}

// Concat joins two tensors along an axis; the others must agree.
func (c *Context) Concat(a, b Tensor, axis int) Tensor {
	const op = "concat"
	if !c.operands(op, a, b) {
		return Tensor{}
	}
	if axis < 0 || axis >= maxDims || a.DType() != b.DType() || a.DType() != tensor.F32 && a.DType() != tensor.F16 {
		return c.fail(op, "%s and %s along axis %d", a, b, axis)
	}
	for i := range maxDims {
		if i != axis && a.c.ne[i] != b.c.ne[i] {
			return c.fail(op, "%s and %s along axis %d: axis %d differs", a, b, axis, i)
		}
	}
	return Tensor{c.lib.c.concat(c.c, a.c, b.c, int32(axis))}
}

// Repeat tiles a to a shape whose axes are multiples of its own.
func (c *Context) Repeat(a Tensor, ne ...int64) Tensor {
	const op = "repeat"
	if !c.floats(op, a) {
		return Tensor{}
	}
	full, ok := fourAxes(ne)
	for i := range maxDims {
		if !ok || full[i]%a.c.ne[i] != 0 {
			return c.fail(op, "%s to %v", a, ne)
		}
	}
	return Tensor{c.lib.c.repeat(c.c, a.c, full[0], full[1], full[2], full[3])}
}

package native

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/sdtool/sdtool/native/lanesum"
	"github.com/sdtool/sdtool/tensor"
)

type customFuncs struct {
	custom func(ctx *cContext, typ int32, ne0, ne1, ne2, ne3 int64, args **cTensor, n int32, fun uintptr, tasks int32, user uintptr) *cTensor `c:"struct ggml_tensor * ggml_custom_4d(struct ggml_context * ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3, struct ggml_tensor ** args, int n_args, uintptr_t fun, int n_tasks, uintptr_t userdata)"`
}

// MulMatExact is MulMat with sums in the order of package lanesum, for an a of
// type f16, or f32 with an f32 b. It runs on the CPU whatever the other ops run
// on, in as many goroutines as workers says and not in ggml's threads: those
// spin while they wait for each other, which costs much on a busy machine.
func (c *Context) MulMatExact(a, b Tensor, workers int) Tensor {
	const op = "exact mul_mat"
	if !c.operands(op, a, b) || !c.product(op, a, b) {
		return Tensor{}
	}
	an, bn := a.c.ne, b.c.ne
	if d := a.DType(); d != tensor.F16 && (d != tensor.F32 || b.DType() != d) || bn[2]%an[2] != 0 || bn[3]%an[3] != 0 {
		return c.fail(op, "%s by %s", a, b)
	}
	args := [2]*cTensor{a.c, b.c}
	t := Tensor{c.lib.c.custom(c.c, 0, an[1], bn[1], bn[2], bn[3], &args[0], 2, entries().exactProduct, 1, uintptr(max(workers, 1)))}
	c.lib.opCustom.Store(t.c.op)
	return t
}

// void (*ggml_custom_op_t)(struct ggml_tensor * dst, int ith, int nth, void * userdata)
func onExactProduct(dst *cTensor, _, _ int32, workers uintptr) uintptr {
	var all sync.WaitGroup
	for i := range int64(workers) {
		all.Go(func() { runExact(dst, i, int64(workers)) })
	}
	all.Wait()
	return 0
}

// runExact computes one worker's share of a product.
func runExact(dst *cTensor, ith, nth int64) {
	defer func() {
		// A panic must not unwind through C. The product stays as it was, and what
		// the values were left as is found where they are used.
		if r := recover(); r != nil {
			poison(dst, fmt.Sprint(r))
		}
	}()
	a, b := dst.src[0], dst.src[1]
	for i3 := range b.ne[3] {
		for i2 := range b.ne[2] {
			p := exactProduct{
				a: matrixOf(a, i2/(b.ne[2]/a.ne[2]), i3/(b.ne[3]/a.ne[3])), b: matrixOf(b, i2, i3), dst: matrixOf(dst, i2, i3),
			}
			if p.a.half {
				p.run(ith, nth)
			} else {
				p.run32(ith, nth)
			}
		}
	}
}

// poison marks a result as unusable: NaN is looked for.
func poison(dst *cTensor, why string) {
	reason := "multiplying: " + why
	activity.Store(&reason)
	*(*uint32)(dst.data) = 0x7fc00000
}

// matrix is one [rows][cols] plane of a tensor with contiguous rows.
type matrix struct {
	data       unsafe.Pointer
	rows, cols int64
	stride     uintptr
	half       bool
}

func matrixOf(t *cTensor, i2, i3 int64) matrix {
	return matrix{
		data: unsafe.Add(t.data, i2*int64(t.nb[2])+i3*int64(t.nb[3])), rows: t.ne[1], cols: t.ne[0],
		stride: t.nb[1], half: t.typ != 0,
	}
}

func (m matrix) row(i int64) unsafe.Pointer { return unsafe.Add(m.data, i*int64(m.stride)) }

// halves returns a row as f16 bits, rounding it into buf if it is f32.
func (m matrix) halves(i int64, buf []uint16) []uint16 {
	if m.half {
		return unsafe.Slice((*uint16)(m.row(i)), m.cols)
	}
	lanesum.Narrow(buf, unsafe.Slice((*float32)(m.row(i)), m.cols))
	return buf
}

type exactProduct struct{ a, b, dst matrix }

// run computes this task's share. The side with more rows is walked once, each
// row widened; the other stays in cache as f16.
func (p exactProduct) run(ith, nth int64) {
	outer, inner, swapped := p.a, p.b, false
	if p.b.rows*p.b.cols > p.a.rows*p.a.cols {
		outer, inner, swapped = p.b, p.a, true
	}
	first, last := outer.rows*ith/nth, outer.rows*(ith+1)/nth
	if first == last {
		return
	}
	k := inner.cols
	rows := make([][]uint16, inner.rows)
	var buf []uint16
	if !inner.half {
		buf = make([]uint16, inner.rows*k)
	}
	for j := range rows {
		var part []uint16
		if buf != nil {
			part = buf[int64(j)*k : int64(j+1)*k]
		}
		rows[j] = inner.halves(int64(j), part)
	}
	wide, narrow := make([]float32, k), make([]uint16, k)
	for i := first; i < last; i++ {
		lanesum.Widen(wide, outer.halves(i, narrow))
		for j, r := range rows {
			v := lanesum.Dot16(wide, r)
			if swapped {
				*(*float32)(unsafe.Add(p.dst.row(i), 4*j)) = v
			} else {
				*(*float32)(unsafe.Add(p.dst.row(int64(j)), 4*i)) = v
			}
		}
	}
}

// run32 is run for two f32 matrices.
func (p exactProduct) run32(ith, nth int64) {
	floats := func(m matrix, i int64) []float32 { return unsafe.Slice((*float32)(m.row(i)), m.cols) }
	for i := p.a.rows * ith / nth; i < p.a.rows*(ith+1)/nth; i++ {
		for j := range p.b.rows {
			*(*float32)(unsafe.Add(p.dst.row(j), 4*i)) = lanesum.Dot32(floats(p.a, i), floats(p.b, j))
		}
	}
}

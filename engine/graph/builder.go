package graph

import (
	"fmt"
	"slices"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/tensor"
)

// Tensor is a value of a graph: an input, a weight or the result of an op.
// The zero Tensor stands for none.
type Tensor struct {
	t    native.Tensor
	rank int
}

// IsZero reports whether x is no tensor, as after an error.
func (x Tensor) IsZero() bool { return x.t.IsZero() }

// Rank returns the number of axes.
func (x Tensor) Rank() int { return x.rank }

// Dim returns the length of an axis, the outermost being 0; negative axes count
// from the innermost, -1. It is 0 for the zero Tensor and for axes not there.
func (x Tensor) Dim(axis int) int64 {
	if axis < 0 {
		axis += x.rank
	}
	if x.IsZero() || axis < 0 || axis >= x.rank {
		return 0
	}
	return x.t.NE()[x.rank-1-axis]
}

// Shape returns the axes, outermost first.
func (x Tensor) Shape() []int64 {
	shape := make([]int64, x.rank)
	for i := range shape {
		shape[i] = x.Dim(i)
	}
	return shape
}

// DType returns the element type.
func (x Tensor) DType() tensor.DType { return x.t.DType() }

// build is what the Builders of one graph share.
type build struct {
	ctx     *native.Context
	weights *Weights
	inputs  []native.Tensor
	layers  map[uintptr]string // scope of each op, by native.Tensor.Key
	options Options
}

// Options change how layers are built.
type Options struct {
	FlashAttention bool // one fused op per attention: less memory, f16 keys and values
	Exact          bool // add up f16 and f32 products in a fixed order: see native/lanesum
}

// Builder makes ops within a scope, the dotted path of a module in the checkpoint.
type Builder struct {
	*build
	scope string
}

// In returns the Builder of a submodule.
func (b Builder) In(path string) Builder {
	b.scope = join(b.scope, path)
	return b
}

// Inf is In with a formatted path.
func (b Builder) Inf(format string, args ...any) Builder { return b.In(fmt.Sprintf(format, args...)) }

// Scope returns the path of the module being built.
func (b Builder) Scope() string { return b.scope }

// Options returns how layers are to be built.
func (b Builder) Options() Options { return b.options }

func join(scope, path string) string {
	if scope == "" {
		return path
	}
	return scope + "." + path
}

// Err returns the first error of the build.
func (b Builder) Err() error { return b.ctx.Err() }

// Fail makes the build fail, unless it has already, and returns no tensor.
func (b Builder) Fail(err error) Tensor {
	b.ctx.SetScope(b.scope)
	b.ctx.Fail(err)
	return Tensor{}
}

// Failf is Fail with a formatted error.
func (b Builder) Failf(format string, args ...any) Tensor { return b.Fail(fmt.Errorf(format, args...)) }

// op runs one op constructor under this scope and notes where it came from.
func (b Builder) op(rank int, f func(c *native.Context) native.Tensor) Tensor {
	b.ctx.SetScope(b.scope)
	t := f(b.ctx)
	if t.IsZero() {
		return Tensor{}
	}
	b.layers[t.Key()] = b.scope
	return Tensor{t, rank}
}

// ne turns a shape around, as ggml writes it.
func ne(shape []int64) []int64 {
	r := slices.Clone(shape)
	slices.Reverse(r)
	return r
}

// Input makes a tensor that Program.Run fills; inputs are filled in the order
// they were made.
func (b Builder) Input(d tensor.DType, shape ...int64) Tensor {
	x := b.op(len(shape), func(c *native.Context) native.Tensor { return c.New(d, ne(shape)...) })
	if !x.IsZero() {
		b.ctx.SetInput(x.t)
		b.inputs = append(b.inputs, x.t)
	}
	return x
}

// Add returns x+y, y being repeated along axes where it is shorter.
func (b Builder) Add(x, y Tensor) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Add(x.t, y.t) })
}

// Sub returns x-y; see Add.
func (b Builder) Sub(x, y Tensor) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Sub(x.t, y.t) })
}

// Mul returns x·y element by element; see Add.
func (b Builder) Mul(x, y Tensor) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Mul(x.t, y.t) })
}

// Scale returns x·s.
func (b Builder) Scale(x Tensor, s float32) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Scale(x.t, s) })
}

// SiLU returns x·sigmoid(x).
func (b Builder) SiLU(x Tensor) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.SiLU(x.t) })
}

// GELU returns x·Φ(x) in the tanh approximation.
func (b Builder) GELU(x Tensor) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.GELU(x.t) })
}

// GELUQuick returns x·sigmoid(1.702 x), which OpenAI's CLIP uses.
func (b Builder) GELUQuick(x Tensor) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.GELUQuick(x.t) })
}

// Norm brings each row to mean 0 and variance 1.
func (b Builder) Norm(x Tensor, eps float32) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Norm(x.t, eps) })
}

// RMSNorm divides each row by its root mean square.
func (b Builder) RMSNorm(x Tensor, eps float32) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.RMSNorm(x.t, eps) })
}

// GroupNorm normalises groups of channels of an [n, channels, h, w].
func (b Builder) GroupNorm(x Tensor, groups int, eps float32) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.GroupNorm(x.t, groups, eps) })
}

// SoftMax returns the softmax of each row of x·scale + mask; the mask may be none.
func (b Builder) SoftMax(x, mask Tensor, scale float32) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.SoftMax(x.t, mask.t, scale) })
}

// MatMul returns x·wᵀ for rows x [.., n, k] and w [.., m, k]: [.., n, m].
func (b Builder) MatMul(x, w Tensor) Tensor {
	return b.op(max(x.rank, w.rank), func(c *native.Context) native.Tensor {
		if b.exact(x, w) {
			return c.MulMatExact(w.t, x.t, b.weights.device.threads)
		}
		return c.MulMat(w.t, x.t)
	})
}

// MatMulF32 is MatMul with sums kept in f32 on every backend.
func (b Builder) MatMulF32(x, w Tensor) Tensor {
	return b.op(max(x.rank, w.rank), func(c *native.Context) native.Tensor {
		if b.exact(x, w) {
			return c.MulMatExact(w.t, x.t, b.weights.device.threads)
		}
		return c.MulMatF32(w.t, x.t)
	})
}

// exact reports whether a product is to be added up in the order of package lanesum.
func (b Builder) exact(x, w Tensor) bool {
	return b.options.Exact && !x.IsZero() && !w.IsZero() &&
		(w.DType() == tensor.F16 || w.DType() == tensor.F32 && x.DType() == tensor.F32)
}

// FlashAttention returns softmax(q·kᵀ·scale + mask)·v, q [n, heads, nq, d], k
// and v f16 [n, heads, nk, d], as [n, nq, heads, d].
func (b Builder) FlashAttention(q, k, v, mask Tensor, scale float32) Tensor {
	return b.op(4, func(c *native.Context) native.Tensor { return c.FlashAttention(q.t, k.t, v.t, mask.t, scale) })
}

// Rows picks rows of a table [rows, width] by i32 ids [n]: [n, width].
func (b Builder) Rows(table, ids Tensor) Tensor {
	return b.op(2, func(c *native.Context) native.Tensor { return c.GetRows(table.t, ids.t) })
}

// Upscale repeats every pixel factor times along the last two axes.
func (b Builder) Upscale(x Tensor, factor int) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Upscale(x.t, factor) })
}

// TimestepEmbedding returns [n, dim] for times [n]: cosines at frequencies
// falling from 1 to 1/10000, then sines.
func (b Builder) TimestepEmbedding(times Tensor, dim int) Tensor {
	return b.op(2, func(c *native.Context) native.Tensor { return c.TimestepEmbedding(times.t, dim, 10000) })
}

// Im2Col lays out the patches of x [n, channels, h, w] that kernel [out,
// channels, kh, kw] sees: f16 [n, outH, outW, channels·kh·kw].
func (b Builder) Im2Col(x, kernel Tensor, stride, pad int) Tensor {
	return b.op(4, func(c *native.Context) native.Tensor { return c.Im2Col(kernel.t, x.t, stride, pad) })
}

// Reshape gives contiguous x another shape.
func (b Builder) Reshape(x Tensor, shape ...int64) Tensor {
	return b.op(len(shape), func(c *native.Context) native.Tensor { return c.Reshape(x.t, ne(shape)...) })
}

// Permute is a view whose axis i is axis order[i] of x, as in numpy's transpose.
func (b Builder) Permute(x Tensor, order ...int) Tensor {
	to := [4]int{0, 1, 2, 3}
	r := x.rank
	if len(order) != r || r > 4 {
		return b.Failf("permute %d axes by %v", r, order)
	}
	for i, from := range order {
		if from < 0 || from >= r {
			return b.Failf("permute %d axes by %v", r, order)
		}
		to[r-1-from] = r - 1 - i
	}
	return b.op(r, func(c *native.Context) native.Tensor { return c.Permute(x.t, to[0], to[1], to[2], to[3]) })
}

// Cont returns x in contiguous memory.
func (b Builder) Cont(x Tensor) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Cont(x.t) })
}

// Slice is a view of elements [from, to) of one axis.
func (b Builder) Slice(x Tensor, axis int, from, to int64) Tensor {
	if axis < 0 {
		axis += x.rank
	}
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Slice(x.t, x.rank-1-axis, from, to) })
}

// Concat joins x and y along an axis.
func (b Builder) Concat(x, y Tensor, axis int) Tensor {
	if axis < 0 {
		axis += x.rank
	}
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Concat(x.t, y.t, x.rank-1-axis) })
}

// Cast converts to another float type.
func (b Builder) Cast(x Tensor, d tensor.DType) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Cast(x.t, d) })
}

// Clamp bounds the elements.
func (b Builder) Clamp(x Tensor, low, high float32) Tensor {
	return b.op(x.rank, func(c *native.Context) native.Tensor { return c.Clamp(x.t, low, high) })
}

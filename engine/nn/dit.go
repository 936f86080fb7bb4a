package nn

import (
	"math"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/tensor"
)

// MLP is two projections with SiLU between them, as embeddings of times and
// vectors have.
func MLP(b graph.Builder, first, second string, x graph.Tensor) graph.Tensor {
	return Linear(b.In(second), b.SiLU(Linear(b.In(first), x)))
}

// RMSNorm divides each row by its root mean square and scales it by the weight at
// the path.
func RMSNorm(b graph.Builder, path string, x graph.Tensor, eps float32) graph.Tensor {
	return b.Mul(b.RMSNorm(x, eps), b.Weight(path, graph.Vector, x.Dim(-1)))
}

// Modulation is what adaptive layer norm does to a row: shift + x·(1 + scale)
// before a layer, times gate after it; each [1, 1, width]. Peebles and Xie 2023,
// arXiv:2212.09748.
type Modulation struct{ Shift, Scale, Gate graph.Tensor }

// Chunks cuts the last axis of x [1, n·width] into n parts [1, 1, width].
func Chunks(b graph.Builder, x graph.Tensor, n int64) []graph.Tensor {
	parts := make([]graph.Tensor, n)
	width := x.Dim(-1) / max(n, 1)
	for i := range parts {
		part := b.Slice(x, -1, int64(i)*width, int64(i+1)*width)
		parts[i] = b.Reshape(b.Cont(part), 1, 1, width)
	}
	return parts
}

// Modulate normalises the rows of x [n, tokens, width] and shifts and scales them.
func (m Modulation) Modulate(b graph.Builder, x graph.Tensor, eps float32) graph.Tensor {
	y := b.Norm(x, eps)
	return b.Add(b.Add(y, b.Mul(y, m.Scale)), m.Shift)
}

// Residual adds the gated result of a layer.
func (m Modulation) Residual(b graph.Builder, x, y graph.Tensor) graph.Tensor {
	return b.Add(x, b.Mul(y, m.Gate))
}

// Heads brings heads outside: [n, tokens, heads·d] becomes [n, heads, tokens, d].
func Heads(b graph.Builder, x graph.Tensor, heads int64) graph.Tensor {
	n, tokens, d := x.Dim(0), x.Dim(1), x.Dim(2)/max(heads, 1)
	return b.Cont(b.Permute(b.Reshape(x, n, tokens, heads, d), 0, 2, 1, 3))
}

// HeadAttention is attention of queries [n, heads, nq, d] over keys and values
// [n, heads, nk, d]; the mask [nq, nk] may be none. Gives [n, nq, heads·d].
func HeadAttention(b graph.Builder, q, k, v, mask graph.Tensor) graph.Tensor {
	n, heads, nq, d := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3)
	scale := float32(1 / math.Sqrt(float64(d)))
	if b.Options().FlashAttention {
		if !mask.IsZero() {
			mask = b.Cast(mask, tensor.F16)
		}
		y := b.FlashAttention(q, b.Cast(k, tensor.F16), b.Cast(v, tensor.F16), mask, scale)
		return b.Reshape(y, n, nq, heads*d)
	}
	return weigh(b, b.SoftMax(b.MatMulF32(q, k), mask, scale), v)
}

// BiasedAttention is HeadAttention with a bias [1, heads, nq, nk] on the scores, which
// are not scaled.
func BiasedAttention(b graph.Builder, q, k, v, bias graph.Tensor) graph.Tensor {
	return weigh(b, b.SoftMax(b.Add(b.MatMulF32(q, k), bias), graph.Tensor{}, 1), v)
}

// weigh adds values [n, heads, nk, d] up by scores [n, heads, nq, nk]: [n, nq, heads·d].
func weigh(b graph.Builder, scores, v graph.Tensor) graph.Tensor {
	y := b.MatMul(scores, b.Cont(b.Permute(v, 0, 1, 3, 2))) // values with tokens innermost
	n, heads, nq, d := v.Dim(0), v.Dim(1), scores.Dim(2), v.Dim(3)
	return b.Reshape(b.Cont(b.Permute(y, 0, 2, 1, 3)), n, nq, heads*d)
}

// Rotate turns each pair of neighbouring elements of x [n, heads, tokens, d] by its
// token's angles, given as cosines and sines [tokens, d/2] (Su et al. 2021,
// arXiv:2104.09864). The first elements of all pairs come before the second ones in the
// result: queries and keys have the same order, so that their products are the same,
// and ops on rows of d/2 are many times faster than on pairs.
func Rotate(b graph.Builder, x, cos, sin graph.Tensor) graph.Tensor {
	n, heads, tokens, d := x.Dim(0), x.Dim(1), x.Dim(2), x.Dim(3)
	halves := b.Cont(b.Permute(b.Reshape(x, n*heads, tokens, d/2, 2), 0, 3, 1, 2))
	first, second := b.Cont(b.Slice(halves, 1, 0, 1)), b.Cont(b.Slice(halves, 1, 1, 2))
	y := b.Concat(b.Sub(b.Mul(first, cos), b.Mul(second, sin)), b.Add(b.Mul(first, sin), b.Mul(second, cos)), -1)
	return b.Reshape(y, n, heads, tokens, d)
}

// Angles returns the cosines and sines that Rotate takes, for positions [tokens][axes]
// and the widths of the axes, which add up to d: axis a turns its pair i by
// position·theta^(-2i/width).
func Angles(positions [][]float64, widths []int64, theta float64) (cos, sin []float32) {
	for _, at := range positions {
		for axis, width := range widths {
			for i := range width / 2 {
				angle := at[axis] * math.Pow(theta, -2*float64(i)/float64(width))
				cos, sin = append(cos, float32(math.Cos(angle))), append(sin, float32(math.Sin(angle)))
			}
		}
	}
	return cos, sin
}

package nn

import (
	"math"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/tensor"
)

// Attention is multi-head attention of queries [n, nq, width] over keys and
// values [n, nk, width]; the mask [nq, nk] may be none. Gives [n, nq, width].
func Attention(b graph.Builder, q, k, v graph.Tensor, heads int64, mask graph.Tensor) graph.Tensor {
	n, nq, width := q.Dim(0), q.Dim(1), q.Dim(2)
	nk := k.Dim(1)
	if b.Err() == nil && (heads < 1 || width%heads != 0) {
		return b.Failf("%d heads over a width of %d", heads, width)
	}
	d := width / max(heads, 1)
	scale := float32(1 / math.Sqrt(float64(d)))
	q = split(b, q, n, nq, heads, d)
	k = split(b, k, n, nk, heads, d)
	if b.Options().FlashAttention && mask.IsZero() {
		v = split(b, v, n, nk, heads, d)
		y := b.FlashAttention(b.Reshape(q, n, heads, nq, d),
			b.Cast(b.Reshape(k, n, heads, nk, d), tensor.F16), b.Cast(b.Reshape(v, n, heads, nk, d), tensor.F16), mask, scale)
		return b.Reshape(y, n, nq, width)
	}
	// Values are needed with tokens innermost: [n·heads, d, nk].
	v = b.Cont(b.Permute(b.Reshape(v, n, nk, heads, d), 0, 2, 3, 1))
	v = b.Reshape(v, n*heads, d, nk)
	scores := b.SoftMax(b.MatMulF32(q, k), mask, scale)
	y := b.MatMul(scores, v)
	y = b.Permute(b.Reshape(y, n, heads, nq, d), 0, 2, 1, 3)
	return b.Reshape(b.Cont(y), n, nq, width)
}

// split brings heads outside: [n, tokens, heads·d] becomes [n·heads, tokens, d].
func split(b graph.Builder, x graph.Tensor, n, tokens, heads, d int64) graph.Tensor {
	x = b.Permute(b.Reshape(x, n, tokens, heads, d), 0, 2, 1, 3)
	return b.Reshape(b.Cont(x), n*heads, tokens, d)
}

// GEGLU projects to twice the width and gates one half with the GELU of the other.
func GEGLU(b graph.Builder, x graph.Tensor) graph.Tensor {
	y := Linear(b.In("proj"), x)
	half := y.Dim(-1) / 2
	value := b.Slice(y, -1, 0, half)
	gate := b.Cont(b.Slice(y, -1, half, 2*half))
	return b.Mul(value, b.GELU(gate))
}

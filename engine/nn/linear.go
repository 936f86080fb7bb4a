package nn

import (
	"github.com/sdtool/sdtool/engine/graph"
)

// Linear is x·Wᵀ + b over the last axis; the bias is used if there is one.
func Linear(b graph.Builder, x graph.Tensor) graph.Tensor {
	w := b.Weight("weight", graph.Matrix, -1, x.Dim(-1))
	y := b.MatMul(x, w)
	if b.Has("bias") {
		y = b.Add(y, b.Weight("bias", graph.Vector, w.Dim(0)))
	}
	return y
}

// LayerNorm normalises each row, then scales and shifts it.
func LayerNorm(b graph.Builder, x graph.Tensor, eps float32) graph.Tensor {
	y := b.Norm(x, eps)
	if !b.Has("weight") {
		return y
	}
	y = b.Mul(y, b.Weight("weight", graph.Vector, x.Dim(-1)))
	if b.Has("bias") {
		y = b.Add(y, b.Weight("bias", graph.Vector, x.Dim(-1)))
	}
	return y
}

// GroupNorm normalises 32 groups of channels of an image, then scales and
// shifts each channel.
func GroupNorm(b graph.Builder, x graph.Tensor) graph.Tensor {
	const (
		groups = 32
		eps    = 1e-6
	)
	c := x.Dim(1)
	y := b.GroupNorm(x, groups, eps)
	y = b.Mul(y, channel(b, "weight", c))
	return b.Add(y, channel(b, "bias", c))
}

// channel returns a vector with one value per channel, shaped to spread over an image.
func channel(b graph.Builder, path string, c int64) graph.Tensor {
	return b.Reshape(b.Weight(path, graph.Vector, c), 1, c, 1, 1)
}

// Conv2D convolves an image with a square kernel and adds the bias.
type Conv2D struct {
	Stride int // 0 means 1
	Pad    int // on all sides
	// InputScale is put on the input and taken off the result, to keep f16
	// patches in range; 0 means 1.
	InputScale float32
}

// Apply convolves x [n, in, h, w].
func (l Conv2D) Apply(b graph.Builder, x graph.Tensor) graph.Tensor {
	w := b.Weight("weight", graph.Kernel, -1, x.Dim(1), -1, -1)
	if l.InputScale != 0 && l.InputScale != 1 {
		x = b.Scale(x, l.InputScale)
	}
	patches := b.Im2Col(x, w, max(l.Stride, 1), l.Pad)
	n, oh, ow := patches.Dim(0), patches.Dim(1), patches.Dim(2)
	out, depth := w.Dim(0), patches.Dim(3)
	// Patches are the matrix and the kernel the rows: the result comes out
	// channel by channel, which is the layout of an image.
	y := b.MatMul(b.Reshape(w, out, depth), b.Reshape(patches, n*oh*ow, depth))
	y = b.Reshape(y, out, n, oh, ow)
	// The reshape changes nothing but the strides of axes of length one.
	y = b.Reshape(b.Cont(b.Permute(y, 1, 0, 2, 3)), n, out, oh, ow)
	if l.InputScale != 0 && l.InputScale != 1 {
		y = b.Scale(y, 1/l.InputScale)
	}
	if b.Has("bias") {
		y = b.Add(y, channel(b, "bias", out))
	}
	return y
}

// Pointwise is a projection of each pixel. Checkpoints store it as a matrix or
// as a 1×1 convolution, and it runs as what it is stored as.
func Pointwise(b graph.Builder, x graph.Tensor) graph.Tensor {
	if IsMatrix(b) {
		n, h, w := x.Dim(0), x.Dim(2), x.Dim(3)
		return ToImage(b, Linear(b, ToTokens(b, x)), n, h, w)
	}
	return Conv2D{}.Apply(b, x)
}

// IsMatrix reports whether the module's weight is stored with two axes.
func IsMatrix(b graph.Builder) bool { return len(b.Stored("weight")) == 2 }

// ToTokens turns an image [n, c, h, w] into pixels [n, h·w, c].
func ToTokens(b graph.Builder, x graph.Tensor) graph.Tensor {
	n, c, h, w := x.Dim(0), x.Dim(1), x.Dim(2), x.Dim(3)
	return b.Reshape(b.Cont(b.Permute(x, 0, 2, 3, 1)), n, h*w, c)
}

// ToImage turns pixels [n, h·w, c] into an image [n, c, h, w].
func ToImage(b graph.Builder, x graph.Tensor, n, h, w int64) graph.Tensor {
	return b.Reshape(b.Cont(b.Permute(x, 0, 2, 1)), n, x.Dim(-1), h, w)
}

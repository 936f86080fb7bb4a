package native

import (
	"fmt"
	"unsafe"

	"github.com/sdtool/sdtool/tensor"
)

// Tensor is a handle to a ggml tensor: an input, a weight, or the result of an
// op. It lives as long as its Context. The zero Tensor is none.
type Tensor struct{ c *cTensor }

// IsZero reports whether t is no tensor at all.
func (t Tensor) IsZero() bool { return t.c == nil }

// NE returns the shape, innermost first, always of four axes.
func (t Tensor) NE() [4]int64 { return t.c.ne }

// NB returns the strides in bytes, innermost first.
func (t Tensor) NB() [4]int64 {
	var nb [4]int64
	for i, n := range t.c.nb {
		nb[i] = int64(n)
	}
	return nb
}

// DType returns the element type.
func (t Tensor) DType() tensor.DType {
	d, _ := tensor.FromGGML(t.c.typ)
	return d
}

// Elements returns the number of elements.
func (t Tensor) Elements() int64 {
	return t.c.ne[0] * t.c.ne[1] * t.c.ne[2] * t.c.ne[3]
}

// Bytes returns how many bytes from the first element's to the last's, strides included.
func (t Tensor) Bytes() int64 {
	if t.Elements() == 0 {
		return 0
	}
	d := t.DType()
	n := t.c.ne[0] * int64(t.c.nb[0]) / d.Block()
	for i := 1; i < maxDims; i++ {
		n += (t.c.ne[i] - 1) * int64(t.c.nb[i])
	}
	return n
}

// Contiguous reports whether the elements lie in one run in row order.
func (t Tensor) Contiguous() bool {
	want := uintptr(t.DType().BlockBytes())
	if t.c.ne[0] != t.DType().Block() && t.c.nb[0] != want {
		return false
	}
	want *= uintptr(t.c.ne[0] / t.DType().Block())
	for i := 1; i < maxDims; i++ {
		if t.c.ne[i] != 1 && t.c.nb[i] != want {
			return false
		}
		want *= uintptr(t.c.ne[i])
	}
	return true
}

// contiguousRows reports whether each row is one run, whatever the other strides.
func (t Tensor) contiguousRows() bool {
	return t.c.ne[0] == 1 || t.c.nb[0] == uintptr(t.DType().BlockBytes())
}

// Name returns the name, at most 63 bytes of it.
func (t Tensor) Name() string { return cString(t.c.name[:]) }

// Source returns operand i of the op that makes the tensor, zero if it has none.
func (t Tensor) Source(i int) Tensor {
	if i < 0 || i >= maxSrc {
		return Tensor{}
	}
	return Tensor{t.c.src[i]}
}

// ViewOf returns the tensor that t is a view of, or zero.
func (t Tensor) ViewOf() Tensor { return Tensor{t.c.viewSrc} }

// Key identifies the tensor among the living ones, for use in maps.
func (t Tensor) Key() uintptr { return uintptr(unsafe.Pointer(t.c)) }

// String formats type and shape for messages, innermost axis first.
func (t Tensor) String() string {
	if t.c == nil {
		return "no tensor"
	}
	return fmt.Sprintf("%s %v", t.DType(), t.c.ne)
}

// memory returns the tensor's bytes if the host can read them in place.
func (l *Library) memory(t Tensor) []byte {
	if t.c == nil || t.c.data == nil || (t.c.buffer != nil && !l.c.bufferHost(t.c.buffer)) {
		return nil
	}
	return unsafe.Slice((*byte)(t.c.data), t.Bytes())
}

// Memory returns the tensor's own memory if the host can address it, else nil.
// It is C's memory: valid until the tensor's buffer is closed or reused.
func (l *Library) Memory(t Tensor) []byte { return l.memory(t) }

// Set copies bytes into a tensor at a byte offset.
func (l *Library) Set(t Tensor, data []byte, offset int64) error {
	if err := checkRange(t, "set", len(data), offset); err != nil || len(data) == 0 {
		return err
	}
	l.c.tensorSet(t.c, unsafe.Pointer(unsafe.SliceData(data)), uintptr(offset), uintptr(len(data)))
	return nil
}

// Get copies bytes out of a tensor from a byte offset on.
func (l *Library) Get(t Tensor, data []byte, offset int64) error {
	if err := checkRange(t, "get", len(data), offset); err != nil || len(data) == 0 {
		return err
	}
	l.c.tensorGet(t.c, unsafe.Pointer(unsafe.SliceData(data)), uintptr(offset), uintptr(len(data)))
	return nil
}

// SetFloats fills an f32 tensor.
func (l *Library) SetFloats(t Tensor, x []float32) error {
	if t.c == nil || t.DType() != tensor.F32 || t.Elements() != int64(len(x)) {
		return fmt.Errorf("set %d floats: the tensor is %s", len(x), t)
	}
	return l.Set(t, floatBytes(x), 0)
}

// SetInts fills an i32 tensor.
func (l *Library) SetInts(t Tensor, x []int32) error {
	if t.c == nil || t.DType() != tensor.I32 || t.Elements() != int64(len(x)) {
		return fmt.Errorf("set %d integers: the tensor is %s", len(x), t)
	}
	return l.Set(t, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)), 0)
}

// GetFloats reads a contiguous f32 tensor.
func (l *Library) GetFloats(t Tensor, x []float32) error {
	if t.c == nil || t.DType() != tensor.F32 || !t.Contiguous() || t.Elements() != int64(len(x)) {
		return fmt.Errorf("get %d floats: the tensor is %s", len(x), t)
	}
	return l.Get(t, floatBytes(x), 0)
}

func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func checkRange(t Tensor, what string, n int, offset int64) error {
	switch {
	case t.c == nil:
		return fmt.Errorf("%s %d bytes: no tensor", what, n)
	case t.c.data == nil && t.c.buffer == nil && (t.c.viewSrc == nil || t.c.viewSrc.buffer == nil):
		return fmt.Errorf("%s %d bytes of %s: it has no memory yet", what, n, t)
	case offset < 0 || int64(n) > t.Bytes()-offset:
		return fmt.Errorf("%s %d bytes at offset %d of %s: it has %d", what, n, offset, t, t.Bytes())
	}
	return nil
}

// IsFloat32 reports whether the elements are f32.
func (t Tensor) IsFloat32() bool { return t.c.typ == 0 }

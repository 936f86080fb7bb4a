package torch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sdtool/sdtool/tensor"
)

// strided is the Source of a tensor whose elements do not lie in C order: a
// transpose, a slice, an expanded axis. A read works out which boxes of the
// tensor it covers and gathers each along the axis with the shortest stride, so
// that it reads long runs of the file where there are any.
//
// Memory: one buffer of at most runBytes for each read.
type strided struct {
	base    tensor.Section // from the first element to the end of the storage
	width   int64          // bytes of an element
	shape   []int64
	strides []int64 // in elements
	bytes   int64   // of the tensor in C order
}

const (
	runBytes = 256 << 10 // longest run that is read at once
	gapBytes = 4 << 10   // longest gap between two elements that is read over
)

// check holds shape, strides and offset (in elements) against the bytes of the
// storage, sets the size and returns where the first element is, in bytes.
func (s *strided) check(offset, storage int64) (first int64, err error) {
	n, err := tensor.Elements(s.shape)
	if err != nil {
		return 0, err
	}
	if s.bytes, err = tensor.CheckedMul(n, s.width); err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, errors.New("negative offset")
	}
	last := offset
	for i, axis := range s.shape {
		if s.strides[i] < 0 {
			return 0, errors.New("negative stride")
		}
		if n == 0 || axis <= 1 {
			continue
		}
		span, err := tensor.CheckedMul(axis-1, s.strides[i])
		if err == nil {
			last, err = tensor.CheckedAdd(last, span)
		}
		if err != nil {
			return 0, err
		}
	}
	if n == 0 {
		return 0, nil
	}
	if elements := storage / s.width; last >= elements {
		return 0, fmt.Errorf("its last element is number %d of %d", last, elements)
	}
	return offset * s.width, nil
}

// contiguous reports whether the elements lie in C order.
func (s *strided) contiguous() bool {
	want := int64(1)
	for i := len(s.shape) - 1; i >= 0; i-- {
		if s.shape[i] == 0 {
			return true
		}
	}
	for i := len(s.shape) - 1; i >= 0; i-- {
		if s.shape[i] == 1 {
			continue
		}
		if s.strides[i] != want {
			return false
		}
		want *= s.shape[i]
	}
	return true
}

// Size returns the number of bytes of the tensor in C order.
func (s *strided) Size() int64 { return s.bytes }

// ReadAt reads bytes of the tensor in C order.
func (s *strided) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.bytes {
		return 0, fmt.Errorf("read at %d of a tensor of %d bytes of %s: out of range", off, s.bytes, s.base.Path)
	}
	want := len(p)
	p = p[:min(int64(want), s.bytes-off)]
	g := gatherer{strided: s}
	done := 0
	for done < len(p) {
		at := off + int64(done)
		n := int64(len(p) - done)
		if skip := at % s.width; skip != 0 || n < s.width { // an element cut by an end of p
			one := make([]byte, s.width)
			if err := g.elements(one, at/s.width); err != nil {
				return done, err
			}
			done += copy(p[done:], one[skip:])
			continue
		}
		n -= n % s.width
		if err := g.elements(p[done:done+int(n)], at/s.width); err != nil {
			return done, err
		}
		done += int(n)
	}
	if done < want {
		return done, io.EOF
	}
	return done, nil
}

// gatherer is one read.
type gatherer struct {
	*strided
	buf []byte
}

// elements fills p with whole elements from number first on.
func (g *gatherer) elements(p []byte, first int64) error {
	return g.split(p, 0, 0, first)
}

// split gathers the elements from number first on, counted within the axes from
// axis on, whose index in the axes before puts their start at element base. A
// range of a tensor is a box, with a partial one before and after it.
func (g *gatherer) split(p []byte, axis int, base, first int64) error {
	if axis >= len(g.shape)-1 {
		if len(g.shape) == 0 {
			return g.box(p, axis, base, 1)
		}
		return g.box(p, axis, base+first*g.strides[axis], int64(len(p))/g.width)
	}
	inner := int64(1) // elements for each index of this axis
	for _, n := range g.shape[axis+1:] {
		inner *= n
	}
	for len(p) > 0 {
		i, rest := first/inner, first%inner
		n := int64(len(p)) / g.width
		start := base + i*g.strides[axis]
		if rest == 0 && n >= inner {
			whole := n / inner
			size := whole * inner * g.width
			if err := g.box(p[:size], axis, start, whole); err != nil {
				return err
			}
			p, first = p[size:], first+whole*inner
			continue
		}
		size := min(n, inner-rest) * g.width
		if err := g.split(p[:size], axis+1, start, rest); err != nil {
			return err
		}
		p, first = p[size:], first+size/g.width
	}
	return nil
}

// axisRange is one axis of a box, outermost first.
type axisRange struct{ n, from, to int64 } // length; stride in the storage and in p, in elements

// box gathers a box that begins at element base: count indices of one axis, and
// all of those after it.
func (g *gatherer) box(p []byte, axis int, base, count int64) error {
	var axes []axisRange
	to := int64(1)
	for i := len(g.shape) - 1; i >= axis; i-- {
		n := g.shape[i]
		if i == axis {
			n = count
		}
		if n > 1 {
			axes = append(axes, axisRange{n, g.strides[i], to})
		}
		to *= n
	}
	if len(axes) == 0 {
		return g.run(p, base, axisRange{1, 1, 1})
	}
	fast := 0
	for i := range axes {
		if g.better(axes[i], axes[fast]) {
			fast = i
		}
	}
	along := axes[fast]
	axes = append(axes[:fast], axes[fast+1:]...)
	slices.SortFunc(axes, func(a, b axisRange) int { return cmp.Compare(b.from, a.from) })
	return g.nest(p, base, axes, along)
}

// better reports whether a is better to read along than b. The longest axis whose
// elements are close together needs the fewest reads; if none are, the shortest
// stride is kindest to the disk; a stride of 0 is no reading at all.
func (g *gatherer) better(a, b axisRange) bool {
	near := func(x axisRange) bool { return x.from != 0 && x.from <= gapBytes/g.width }
	switch {
	case near(a) != near(b):
		return near(a)
	case near(a) && a.n != b.n:
		return a.n > b.n
	}
	return a.from != 0 && (b.from == 0 || a.from < b.from)
}

// nest runs over all axes but the one that is read along. They come with the
// longest stride first, so that reads go forward in the file.
func (g *gatherer) nest(p []byte, base int64, axes []axisRange, along axisRange) error {
	if len(axes) == 0 {
		return g.run(p, base, along)
	}
	for i := range axes[0].n {
		if err := g.nest(p[i*axes[0].to*g.width:], base+i*axes[0].from, axes[1:], along); err != nil {
			return err
		}
	}
	return nil
}

// run gathers elements along one axis: those at base, base+from, … of the storage
// go to places 0, to, … of p.
func (g *gatherer) run(p []byte, base int64, a axisRange) error {
	if a.from == 0 || a.from > gapBytes/g.width {
		return g.single(p, base, a)
	}
	step := a.from * g.width
	if a.from == 1 && a.to == 1 {
		return g.read(p[:a.n*g.width], base)
	}
	if g.buf == nil {
		g.buf = make([]byte, min(runBytes, g.base.Length))
	}
	// Elements whose run fits the buffer; the last needs no gap after it.
	fit := max((int64(len(g.buf))-g.width)/step+1, 1)
	for i := int64(0); i < a.n; i += fit {
		n := min(fit, a.n-i)
		b := g.buf[:(n-1)*step+g.width]
		if err := g.read(b, base+i*a.from); err != nil {
			return err
		}
		for k := range n {
			copy(p[(i+k)*a.to*g.width:][:g.width], b[k*step:])
		}
	}
	return nil
}

// single reads elements that are far apart one by one, or one element that
// stands for all.
func (g *gatherer) single(p []byte, base int64, a axisRange) error {
	for i := range a.n {
		dst := p[i*a.to*g.width:][:g.width]
		if a.from == 0 && i > 0 {
			copy(dst, p[:g.width])
			continue
		}
		if err := g.read(dst, base+i*a.from); err != nil {
			return err
		}
	}
	return nil
}

// read reads inside the storage.
func (g *gatherer) read(p []byte, element int64) error {
	if _, err := g.base.ReadAt(p, element*g.width); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

package graph

import (
	"fmt"
	"slices"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/tensor"
)

// Use says what a weight is for, which decides the type it is kept in.
type Use uint8

// Uses of weights.
const (
	Matrix Use = iota // left operand of a matrix product: any type ggml has
	Table             // rows are picked from it: types that ggml can pick from
	Kernel            // of a convolution: f16
	Vector            // added or multiplied: f32
)

var useNames = [...]string{Matrix: "matrix", Table: "table", Kernel: "kernel", Vector: "vector"}

func (u Use) String() string { return useNames[u] }

// Weights holds the tensors of a checkpoint that models have asked for.
type Weights struct {
	device   *Device
	ctx      *native.Context
	sources  map[string]tensor.Tensor
	byName   map[string]*weight
	byKey    map[uintptr]*weight
	order    []*weight
	buffers  []*native.Buffer
	loaded   bool
	mapped   bool // files may be mapped
	mappings []mapping
	bytes    int64
}

type weight struct {
	info    tensor.Info // as stored
	source  tensor.Source
	use     Use
	dtype   tensor.DType // as kept
	t       native.Tensor
	inPlace bool // it lies in its file
}

// NewWeights returns the weights of a checkpoint, none of them asked for yet.
// The sources must stay readable until Load has returned.
func NewWeights(d *Device, tensors []tensor.Tensor) (*Weights, error) {
	w := &Weights{
		device: d, sources: make(map[string]tensor.Tensor, len(tensors)),
		byName: make(map[string]*weight), byKey: make(map[uintptr]*weight),
	}
	for _, t := range tensors {
		if _, twice := w.sources[t.Name]; twice {
			return nil, fmt.Errorf("tensor %q occurs twice", t.Name)
		}
		w.sources[t.Name] = t
	}
	var err error
	w.ctx, err = d.Lib.NewContext(max(len(tensors), 1))
	return w, err
}

// Close frees the weights. Programs that use them must be closed before.
func (w *Weights) Close() {
	for _, b := range w.buffers {
		b.Close()
	}
	w.buffers = nil
	for _, m := range w.mappings {
		_ = m.close() // memory that was mapped can be unmapped
	}
	w.mappings = nil
	w.ctx.Close()
}

// Bytes returns the memory of the weights asked for.
func (w *Weights) Bytes() int64 { return w.bytes }

// Name returns the full name of a weight by its tensor, or "": ggml itself
// keeps only 63 bytes of a name.
func (w *Weights) Name(t native.Tensor) string {
	for !t.IsZero() {
		if x := w.byKey[t.Key()]; x != nil {
			return x.info.Name
		}
		t = t.ViewOf()
	}
	return ""
}

// Asked lists the tensors models asked for, as the checkpoint stores them.
func (w *Weights) Asked(u Use) []tensor.Info {
	var all []tensor.Info
	for _, x := range w.order {
		if x.use == u {
			all = append(all, x.info)
		}
	}
	return all
}

// Has reports whether the checkpoint has a tensor, by its path below the scope.
func (b Builder) Has(path string) bool {
	_, ok := b.weights.sources[join(b.scope, path)]
	return ok
}

// Stored returns the shape of a checkpoint's tensor by its path below the
// scope, outermost first, or nil if there is none.
func (b Builder) Stored(path string) []int64 {
	t, ok := b.weights.sources[join(b.scope, path)]
	if !ok {
		return nil
	}
	return t.Shape
}

// MissingError tells that a checkpoint lacks a tensor that its family has.
type MissingError struct{ Tensor string }

func (e *MissingError) Error() string { return fmt.Sprintf("tensor %q is missing", e.Tensor) }

// Weight returns a weight by its path below the scope. Its rank is that of the
// wanted shape, where -1 stands for any length; the checkpoint may have more or
// fewer axes of length one.
func (b Builder) Weight(path string, use Use, shape ...int64) Tensor {
	name := join(b.scope, path)
	x := b.weights.byName[name]
	if x == nil {
		src, ok := b.weights.sources[name]
		if !ok {
			return b.Fail(&MissingError{name})
		}
		var err error
		if x, err = b.weights.ask(src, use, len(shape)); err != nil {
			return b.Fail(err)
		}
	}
	if x.use != use {
		return b.Failf("tensor %q is used as a %s and as a %s", name, x.use, use)
	}
	have := fit(x.info.Shape, len(shape))
	for i, n := range shape {
		if len(have) != len(shape) || n >= 0 && have[i] != n {
			return b.Failf("tensor %q has shape %s, expected %s", name, tensor.ShapeString(x.info.Shape), wanted(shape))
		}
	}
	return Tensor{x.t, len(shape)}
}

func wanted(shape []int64) string {
	s := tensor.ShapeString(shape)
	for i := slices.Index(shape, -1); i >= 0; {
		return s + " (-1 being any)"
	}
	return s
}

// fit drops or adds outer and inner axes of length one to reach a rank.
func fit(shape []int64, rank int) []int64 {
	s := slices.Clone(shape)
	for len(s) > rank && s[len(s)-1] == 1 {
		s = s[:len(s)-1]
	}
	for len(s) > rank && s[0] == 1 {
		s = s[1:]
	}
	if len(s) == 2 && rank == 4 {
		return append(s, 1, 1) // a 1×1 convolution that was stored as a matrix
	}
	for len(s) < rank {
		s = append([]int64{1}, s...)
	}
	return s
}

// ask creates the tensor a weight will be loaded into.
func (w *Weights) ask(src tensor.Tensor, use Use, rank int) (*weight, error) {
	if w.loaded {
		return nil, fmt.Errorf("tensor %q was not asked for before the weights were loaded", src.Name)
	}
	shape := fit(src.Shape, rank)
	x := &weight{info: src.Info, source: src.Source, use: use, dtype: w.kept(src, use)}
	x.t = w.ctx.New(x.dtype, ne(shape)...)
	if err := w.ctx.Err(); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", src.Name, err)
	}
	w.ctx.SetName(x.t, src.Name)
	w.byName[src.Name], w.byKey[x.t.Key()] = x, x
	w.order = append(w.order, x)
	w.bytes += x.t.Bytes()
	return x, nil
}

// kept chooses the type a weight is held in.
func (w *Weights) kept(src tensor.Tensor, use Use) tensor.DType {
	d := src.DType
	id, ggml := d.GGML()
	ggml = ggml && w.device.Lib.HasType(id)
	_, computed := src.Source.(tensor.FloatSource)
	switch use {
	case Vector:
		return tensor.F32
	case Kernel:
		return tensor.F16
	case Table:
		switch d {
		case tensor.F16, tensor.Q8_0, tensor.Q5_1, tensor.Q5_0, tensor.Q4_1, tensor.Q4_0:
			return d
		}
		return tensor.F32
	}
	switch {
	case computed:
		return tensor.F16 // decoded while it is read: its precision was less than that
	case ggml && (d.IsQuantized() || d == tensor.F32 || d == tensor.F16 || d == tensor.BF16):
		return d
	case d == tensor.F8E4M3 || d == tensor.F8E5M2:
		return tensor.F16
	}
	return tensor.F32
}

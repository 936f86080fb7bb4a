package graph

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/sdtool/sdtool/native"
)

// Program is a compiled graph with fixed input shapes. Running it after another
// program of the device builds it anew, because ggml cannot give a graph memory
// twice; that takes some milliseconds.
type Program struct {
	Name string

	device  *Device
	weights *Weights
	options Options
	build   func(b Builder) Tensor

	ctx    *native.Context
	graph  *native.Graph
	inputs []native.Tensor
	output Tensor
	layers map[uintptr]string
}

// Compile builds a graph. The build function makes the inputs and returns the
// output. Errors name the module they occurred in.
func (d *Device) Compile(name string, w *Weights, o Options, f func(b Builder) Tensor) (*Program, error) {
	p := &Program{Name: name, device: d, weights: w, options: o, build: f}
	if err := p.rebuild(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Program) rebuild() error {
	p.free()
	ctx, err := p.device.Lib.NewContext(maxNodes)
	if err != nil {
		return err
	}
	b := Builder{build: &build{ctx: ctx, weights: p.weights, layers: make(map[uintptr]string), options: p.options}}
	out := p.build(b)
	g, err := ctx.Graph(out.t)
	if err != nil {
		ctx.Close()
		return fmt.Errorf("build %s: %w", p.Name, err)
	}
	p.ctx, p.graph, p.inputs, p.output, p.layers = ctx, g, b.inputs, out, b.layers
	return nil
}

func (p *Program) free() {
	if p.ctx == nil {
		return
	}
	p.device.sched.Release(p.graph)
	p.ctx.Close()
	p.ctx, p.graph = nil, nil
}

// Close frees the graph.
func (p *Program) Close() { p.free() }

// Shape returns the shape of the output.
func (p *Program) Shape() []int64 { return p.output.Shape() }

// Nodes returns the number of ops.
func (p *Program) Nodes() int { return p.graph.Nodes() }

// Value is what an input is filled with.
type Value struct {
	floats []float32
	ints   []int32
}

// Floats is the value of an f32 input.
func Floats(x []float32) Value { return Value{floats: x} }

// Ints is the value of an i32 input.
func Ints(x []int32) Value { return Value{ints: x} }

// Run fills the inputs in the order they were made, computes, and returns the
// output, f32. An output that is not finite makes a *NonFiniteError.
func (p *Program) Run(ctx context.Context, inputs ...Value) ([]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(inputs) != len(p.inputs) {
		return nil, fmt.Errorf("run %s: %d inputs, expected %d", p.Name, len(inputs), len(p.inputs))
	}
	// A cancelled context stops the device between two ops.
	stop := p.device.main.Stopper()
	stop.Store(false)
	fired := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		stop.Store(true)
		close(fired)
	})
	out, err := p.compute(inputs)
	if !end() {
		<-fired // else the flag could be set in the middle of the next run
	}
	if errors.Is(err, native.ErrStopped) && ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	if _, bad := firstNonFinite(out); bad {
		return nil, p.blame(inputs)
	}
	return out, nil
}

func (p *Program) compute(inputs []Value) ([]float32, error) {
	d := p.device
	if p.graph == nil || p.graph.Spent() {
		if err := p.rebuild(); err != nil {
			return nil, err
		}
	}
	if p.options.Exact {
		d.useThreads(1) // its products have workers of their own, and are nearly all of the work
	} else {
		d.useThreads(d.threads)
	}
	if err := d.sched.Alloc(p.graph); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	for i, v := range inputs {
		var err error
		if v.ints != nil {
			err = d.Lib.SetInts(p.inputs[i], v.ints)
		} else {
			err = d.Lib.SetFloats(p.inputs[i], v.floats)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: input %d: %w", p.Name, i, err)
		}
	}
	if err := d.sched.Run(p.Name); err != nil {
		return nil, err
	}
	out := make([]float32, p.output.t.Elements())
	if err := d.Lib.GetFloats(p.output.t, out); err != nil {
		return nil, fmt.Errorf("%s: output: %w", p.Name, err)
	}
	return out, nil
}

func firstNonFinite(x []float32) (float32, bool) {
	for _, v := range x {
		if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
			return v, true
		}
	}
	return 0, false
}

// blame runs the graph once more, looking at every op's result, to say which
// layer was the first to go wrong.
func (p *Program) blame(inputs []Value) error {
	f := &finder{program: p}
	p.device.sched.Observe(f)
	defer p.device.sched.Observe(p.device.observer)
	_, err := p.compute(inputs)
	var found *NonFiniteError
	if errors.As(err, &found) {
		return found
	}
	if err != nil {
		return err
	}
	return &NonFiniteError{Program: p.Name, Layer: "an unknown layer", Value: float32(math.NaN())}
}

// finder stops a run at the first op whose f32 result is not finite.
type finder struct {
	program *Program
	buf     []float32
}

func (f *finder) Want(native.Tensor) bool { return true }

func (f *finder) Seen(t native.Tensor) error {
	if !t.IsFloat32() || !t.Contiguous() {
		return nil
	}
	n := int(t.Elements())
	if cap(f.buf) < n {
		f.buf = make([]float32, n)
	}
	f.buf = f.buf[:n]
	lib := f.program.device.Lib
	if err := lib.GetFloats(t, f.buf); err != nil {
		return err
	}
	if v, bad := firstNonFinite(f.buf); bad {
		return &NonFiniteError{Program: f.program.Name, Layer: f.program.layers[t.Key()], Op: lib.Op(t), Value: v}
	}
	return nil
}

package enginetest

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// Network is what a script in testdata keeps of a whole network that diffusers ran.
type Network struct {
	Tensors map[string][]int64
	Output  []float32
	Blocks  map[string][][]float32 // by module: some values of each stream after it
	Columns map[string][]float64   // by linear layer: mean squares of its input's columns
	Sampled []float32              // after a loop of Euler steps
	Sigmas  []float32              // of the loop
}

// Renamed returns the network's weights, f32, under the original names of a family.
func (n Network) Renamed(t testing.TB, family rename.Family) []tensor.Tensor {
	t.Helper()
	return Renamed(t, family, Tensors(n.Tensors, tensor.F32, Matrix))
}

// Renamed brings tensors under the original names of a family.
func Renamed(t testing.TB, family rename.Family, tensors []tensor.Tensor) []tensor.Tensor {
	t.Helper()
	r, err := rename.Apply(family, tensors)
	require.NoError(t, err)
	require.Empty(t, r.Incomplete)
	list := make([]tensor.Tensor, len(r.Tensors))
	for i, x := range r.Tensors {
		list[i] = x.Tensor
	}
	return list
}

// Bench is a device with weights.
type Bench struct {
	Device  *graph.Device
	Weights *graph.Weights
}

// Open gives a test the CPU and the weights; both are closed at its end.
func Open(t *testing.T, tensors []tensor.Tensor) Bench {
	t.Helper()
	d, err := graph.OpenDevice(nativetest.Library(t), "", 1)
	require.NoError(t, err)
	w, err := graph.NewWeights(d, tensors)
	require.NoError(t, err)
	t.Cleanup(func() {
		w.Close()
		d.Close()
	})
	return Bench{d, w}
}

// Shape looks a weight's shape up.
func Shape(tensors []tensor.Tensor) func(name string) []int64 {
	shapes := make(map[string][]int64, len(tensors))
	for _, t := range tensors {
		shapes[t.Name] = t.Shape
	}
	return func(name string) []int64 { return shapes[name] }
}

// Watch adds up the squares of what products by named weights are fed, until done is
// called, which returns the means of each column by the weight's name.
func (b Bench) Watch(t testing.TB) (done func() map[string][]float64) {
	w := &watcher{bench: b, sums: make(map[string][]float64), rows: make(map[string]int)}
	b.Device.Observe(w)
	return func() map[string][]float64 {
		b.Device.Observe(nil)
		for name, sums := range w.sums {
			for i := range sums {
				sums[i] /= float64(w.rows[name])
			}
		}
		return w.sums
	}
}

type watcher struct {
	bench Bench
	sums  map[string][]float64
	rows  map[string]int
}

// Want chooses the products by named weights.
func (w *watcher) Want(x native.Tensor) bool {
	return w.bench.Device.Lib.IsMulMat(x) && w.bench.Weights.Name(x.Source(0)) != ""
}

// Seen adds the input of one up.
func (w *watcher) Seen(x native.Tensor) error {
	name, in := w.bench.Weights.Name(x.Source(0)), x.Source(1)
	values := make([]float32, in.Elements())
	if err := w.bench.Device.Lib.GetFloats(in, values); err != nil {
		return err
	}
	width := int(in.NE()[0])
	sums := w.sums[name]
	if sums == nil {
		sums = make([]float64, width)
		w.sums[name] = sums
	}
	for i, v := range values {
		sums[i%width] += float64(v) * float64(v)
	}
	w.rows[name] += len(values) / width
	return nil
}

// CompareColumns compares watched columns with torch's. original gives the name of a weight
// after renaming for a linear layer; several may have one (fused projections share
// their input). Every layer must have been seen.
func (n Network) CompareColumns(t testing.TB, got map[string][]float64, original func(module string) string) {
	t.Helper()
	seen := make(map[string]bool)
	for module, want := range n.Columns {
		name := original(module)
		have := got[name]
		if !assert.NotNil(t, have, "%s, that is %s, was not seen", module, name) || !assert.Len(t, have, len(want), name) {
			continue
		}
		seen[name] = true
		var ab, aa, bb float64
		for i, x := range want {
			ab, aa, bb = ab+x*have[i], aa+x*x, bb+have[i]*have[i]
		}
		assert.Greater(t, ab/math.Sqrt(aa*bb), 0.9999, name)
		assert.InEpsilon(t, math.Sqrt(aa), math.Sqrt(bb), 1e-3, name)
	}
	for name := range got {
		assert.True(t, seen[name], "%s is no linear layer of the reference", name)
	}
}

// Euler runs the loop of Euler steps that the reference ran.
func (n Network) Euler(t testing.TB, x []float32, velocity func(x []float32, sigma float32) []float32) []float32 {
	t.Helper()
	for i := 1; i < len(n.Sigmas); i++ {
		v := velocity(x, n.Sigmas[i-1])
		next := make([]float32, len(x))
		for j := range x {
			next[j] = x[j] + (n.Sigmas[i]-n.Sigmas[i-1])*v[j]
		}
		x = next
	}
	return x
}

// Streams is how many values the scripts keep of a stream, about.
const Streams = 400

// Some picks about most evenly spaced values, as the scripts do.
func Some(x []float32, most int) []float32 {
	step := max(1, len(x)/most)
	var out []float32
	for i := 0; i < len(x); i += step {
		out = append(out, x[i])
	}
	return out
}

// Run compiles a graph of the weights already loaded and returns its result.
func (b Bench) Run(t testing.TB, name string, o graph.Options, build func(b graph.Builder) (graph.Tensor, []graph.Value)) []float32 {
	t.Helper()
	var values []graph.Value
	p, err := b.Device.Compile(name, b.Weights, o, func(g graph.Builder) graph.Tensor {
		var out graph.Tensor
		out, values = build(g)
		return out
	})
	require.NoError(t, err)
	defer p.Close()
	out, err := p.Run(context.Background(), values...)
	require.NoError(t, err)
	return out
}

package enginetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/tensor"
)

// block is what testdata/make_blocks.py keeps of one.
type block struct {
	Tensors map[string][]int64
	Inputs  map[string][]int64
	Output  []float32
	Shape   []int64
}

// Input is what goes into a block: synthetic values of the shape that the reference
// had, unless given.
type Input struct {
	Name   string
	Values []float32
	Shape  []int64 // of given values
}

// Block compiles one block of a network, runs it on the inputs and
// compares the result with torch's.
func Block(t *testing.T, name string, inputs []Input, tolerance float64, build func(b graph.Builder, in []graph.Tensor) graph.Tensor) {
	t.Helper()
	var all map[string]block
	Read(t, "blocks.json.gz", &all)
	want, ok := all[name]
	require.True(t, ok, name)
	d, err := graph.OpenDevice(nativetest.Library(t), "", 1)
	require.NoError(t, err)
	defer d.Close()
	w, err := graph.NewWeights(d, Tensors(want.Tensors, tensor.F16, Kernel))
	require.NoError(t, err)
	defer w.Close()
	var values []graph.Value
	p, err := d.Compile(name, w, graph.Options{}, func(b graph.Builder) graph.Tensor {
		values = values[:0]
		var in []graph.Tensor
		for _, x := range inputs {
			if x.Values == nil {
				x.Shape = want.Inputs[x.Name]
				n, err := tensor.Elements(x.Shape)
				require.NoError(t, err)
				x.Values = Values(x.Name, n)
			}
			in = append(in, b.Input(tensor.F32, x.Shape...))
			values = append(values, graph.Floats(x.Values))
		}
		return build(b, in)
	})
	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, want.Shape, p.Shape())
	require.NoError(t, w.Load(context.Background(), nil))
	got, err := p.Run(context.Background(), values...)
	require.NoError(t, err)
	Near(t, name, want.Output, got, tolerance)
}

package nn

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/tensor"
)

func rotated(tb testing.TB, threads int, n, heads, tokens, d int64) (run func(x, cos, sin []float32) []float32) {
	dev, err := graph.OpenDevice(nativetest.Library(tb), "", threads)
	require.NoError(tb, err)
	w, err := graph.NewWeights(dev, nil)
	require.NoError(tb, err)
	p, err := dev.Compile("rotate", w, graph.Options{}, func(b graph.Builder) graph.Tensor {
		return Rotate(b, b.Input(tensor.F32, n, heads, tokens, d), b.Input(tensor.F32, tokens, d/2), b.Input(tensor.F32, tokens, d/2))
	})
	require.NoError(tb, err)
	require.NoError(tb, w.Load(context.Background(), nil))
	tb.Cleanup(func() {
		p.Close()
		w.Close()
		dev.Close()
	})
	return func(x, cos, sin []float32) []float32 {
		y, err := p.Run(context.Background(), graph.Floats(x), graph.Floats(cos), graph.Floats(sin))
		require.NoError(tb, err)
		return y
	}
}

func TestRotate(t *testing.T) {
	const n, heads, tokens, d = 2, 3, 5, 8
	positions := make([][]float64, tokens)
	for i := range positions {
		positions[i] = []float64{float64(i), float64(2 * i)}
	}
	cos, sin := Angles(positions, []int64{2, 6}, 10000)
	x := make([]float32, n*heads*tokens*d)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)))
	}
	got := rotated(t, 1, n, heads, tokens, d)(x, cos, sin)
	for row := range n * heads * tokens {
		for i := range d / 2 {
			a, b := x[row*d+2*i], x[row*d+2*i+1]
			c, s := cos[row%tokens*d/2+i], sin[row%tokens*d/2+i]
			require.InDelta(t, a*c-b*s, got[row*d+i], 1e-6)
			require.InDelta(t, a*s+b*c, got[row*d+d/2+i], 1e-6)
		}
	}
}

func BenchmarkRotate(b *testing.B) {
	const heads, tokens, d = 24, 1280, 128
	run := rotated(b, 2, 1, heads, tokens, d)
	x, cos, sin := make([]float32, heads*tokens*d), make([]float32, tokens*d/2), make([]float32, tokens*d/2)
	for b.Loop() {
		run(x, cos, sin)
	}
}

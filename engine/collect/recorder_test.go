package collect

import (
	"errors"
	"math"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine"
	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/tensor"
)

// product is a matrix product by a weight "w" that a Recorder watches.
type product struct {
	lib   *native.Library
	ctx   *native.Context
	sched *native.Scheduler
	acc   *imatrix.Accumulator
	rec   *Recorder
}

func newProduct(t *testing.T) *product {
	t.Helper()
	lib := nativetest.Library(t)
	b, err := lib.NewBackend("")
	require.NoError(t, err)
	t.Cleanup(b.Close)
	b.SetThreads(1)
	sched, err := lib.NewScheduler(64, b)
	require.NoError(t, err)
	t.Cleanup(sched.Close)
	ctx, err := lib.NewContext(64)
	require.NoError(t, err)
	t.Cleanup(ctx.Close)
	acc := imatrix.NewAccumulator()
	return &product{lib, ctx, sched, acc, NewRecorder(lib, acc, Filter{})}
}

func (p *product) input(d tensor.DType, ne ...int64) native.Tensor {
	x := p.ctx.New(d, ne...)
	p.ctx.SetInput(x)
	return x
}

func (p *product) Want(t native.Tensor) bool { return p.lib.IsMulMat(t) || p.lib.IsMulMatID(t) }

func (p *product) Seen(t native.Tensor) error {
	x := engine.Product{Name: "model.w", Weight: t.Source(0), Input: t.Source(1)}
	if p.lib.IsMulMatID(t) {
		x.IDs = t.Source(2)
	}
	return p.rec.Record(x)
}

func (p *product) run(t *testing.T, out native.Tensor, fill func()) error {
	t.Helper()
	g, err := p.ctx.Graph(out)
	require.NoError(t, err)
	require.NoError(t, p.sched.Alloc(g))
	fill()
	p.sched.Observe(p)
	return p.sched.Run("a product")
}

func (p *product) entry(t *testing.T) *imatrix.Entry {
	t.Helper()
	set, err := p.acc.Snapshot(imatrix.Info{})
	require.NoError(t, err)
	require.Len(t, set.Headers(), 1)
	e, err := set.Read(0)
	require.NoError(t, err)
	return e
}

// All batch axes count, not only the first matrix.
func TestBatchAxesCount(t *testing.T) {
	p := newProduct(t)
	w, x := p.input(tensor.F32, 4, 3), p.input(tensor.F32, 4, 2, 3, 2)
	require.NoError(t, p.run(t, p.ctx.MulMat(w, x), func() {
		require.NoError(t, p.lib.SetFloats(w, make([]float32, 12)))
		v := make([]float32, 48)
		for i := range v {
			v[i] = float32(i % 4)
		}
		require.NoError(t, p.lib.SetFloats(x, v))
	}))
	e := p.entry(t)
	assert.Equal(t, []float64{0, 12, 48, 108}, e.Sums)
	assert.Equal(t, []int64{12}, e.Counts)
	assert.EqualValues(t, 1, e.Calls)
}

// Rows may lie apart: here they are slices of longer ones.
func TestStridesCount(t *testing.T) {
	p := newProduct(t)
	w, x := p.input(tensor.F32, 2, 3), p.input(tensor.F32, 6, 2)
	part := p.ctx.Slice(x, 0, 2, 4)
	require.NoError(t, p.run(t, p.ctx.MulMat(w, part), func() {
		require.NoError(t, p.lib.SetFloats(w, make([]float32, 6)))
		require.NoError(t, p.lib.SetFloats(x, []float32{9, 9, 1, 2, 9, 9, 9, 9, 3, 4, 9, 9}))
	}))
	e := p.entry(t)
	assert.Equal(t, []float64{1 + 9, 4 + 16}, e.Sums)
	assert.Equal(t, []int64{2}, e.Counts)
}

// Activations of any type are read as what they are.
func TestHalfActivations(t *testing.T) {
	p := newProduct(t)
	w, x := p.input(tensor.F16, 2, 3), p.input(tensor.F16, 2, 2)
	require.NoError(t, p.run(t, p.ctx.MulMat(w, x), func() {
		require.NoError(t, p.lib.Set(w, make([]byte, 12), 0))
		require.NoError(t, p.lib.Set(x, []byte{0, 0x3c, 0, 0x40, 0, 0x42, 0, 0xc4}, 0)) // 1 2 3 -4
	}))
	assert.Equal(t, []float64{10, 20}, p.entry(t).Sums)
}

// Each expert gets the rows that chose it.
func TestChosenMatrices(t *testing.T) {
	p := newProduct(t)
	w, x, ids := p.input(tensor.F32, 2, 3, 4), p.input(tensor.F32, 2, 1, 3), p.input(tensor.I32, 2, 3)
	require.NoError(t, p.run(t, p.ctx.MulMatID(w, x, ids), func() {
		require.NoError(t, p.lib.SetFloats(w, make([]float32, 24)))
		require.NoError(t, p.lib.SetFloats(x, []float32{1, 2, 3, 4, 5, 6}))
		require.NoError(t, p.lib.SetInts(ids, []int32{0, 2, 2, 0, 3, 2}))
	}))
	e := p.entry(t)
	assert.Equal(t, []int64{2, 0, 3, 1}, e.Counts)
	assert.Equal(t, []float64{1 + 9, 4 + 16, 0, 0, 1 + 9 + 25, 4 + 16 + 36, 25, 36}, e.Sums)
	assert.EqualValues(t, 1, e.Calls)
}

// Field fault 56: NaN is found at once and named, and what came before is kept.
func TestFault056NaNStopsAtOnce(t *testing.T) {
	p := newProduct(t)
	w, x := p.input(tensor.F32, 2, 3), p.input(tensor.F32, 2, 2)
	err := p.run(t, p.ctx.MulMat(w, x), func() {
		require.NoError(t, p.lib.SetFloats(w, make([]float32, 6)))
		require.NoError(t, p.lib.SetFloats(x, []float32{1, float32(math.NaN()), 3, float32(math.Inf(1))}))
	})
	var bad *NonFiniteError
	require.True(t, errors.As(err, &bad))
	assert.Equal(t, &NonFiniteError{Weight: "model.w", Values: 2}, bad)
	assert.ErrorContains(t, err, `"model.w"`)
}

// Field fault 58: two widths under one name are an error, not a write past the end.
func TestFault058TwoWidths(t *testing.T) {
	p := newProduct(t)
	for i, cols := range []int64{2, 4} {
		w, x := p.input(tensor.F32, cols, 3), p.input(tensor.F32, cols, 2)
		ctx, err := p.lib.NewContext(8)
		require.NoError(t, err)
		defer ctx.Close()
		err = p.run(t, p.ctx.MulMat(w, x), func() {
			require.NoError(t, p.lib.SetFloats(w, make([]float32, cols*3)))
			require.NoError(t, p.lib.SetFloats(x, make([]float32, cols*2)))
		})
		var width *imatrix.WidthError
		assert.Equal(t, i == 1, errors.As(err, &width))
		if i == 0 {
			// The scheduler gives a second graph of one context its own memory.
			p.ctx, err = p.lib.NewContext(64)
			require.NoError(t, err)
			t.Cleanup(p.ctx.Close)
		}
	}
}

func TestStepWeights(t *testing.T) {
	for text, want := range map[string][]int{
		"": {1, 1, 1, 1}, "uniform": {1, 1, 1, 1}, "late": {1, 2, 3, 4}, "early": {4, 3, 2, 1}, "0, 2": {0, 2, 2, 2},
	} {
		w, err := ParseStepWeights(text)
		require.NoError(t, err)
		for i, n := range want {
			assert.Equal(t, n, w.At(i+1, len(want)), "%q, step %d", text, i+1)
		}
		assert.Equal(t, max(want[0], 0) > 0, w.At(1, 1) > 0)
	}
	for _, bad := range []string{"0", "0,0", "-1", "x", "1,,2", "1001"} {
		_, err := ParseStepWeights(bad)
		assert.Error(t, err, bad)
	}
}

func TestFilter(t *testing.T) {
	f := Filter{}
	assert.True(t, f.Match("model.diffusion_model.x.weight"))
	assert.True(t, f.Match("text_encoders.t5xxl.x"))
	assert.False(t, f.Match("first_stage_model.decoder.mid.attn_1.q.weight"))
	f = Filter{Include: []*regexp.Regexp{regexp.MustCompile("attn")}, Exclude: []*regexp.Regexp{regexp.MustCompile("attn2")}}
	assert.True(t, f.Match("model.attn1.to_q"))
	assert.False(t, f.Match("model.attn2.to_q"))
	assert.False(t, f.Match("model.ff"))
}

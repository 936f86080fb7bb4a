package native_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/tensor"
)

type bench struct {
	lib   *native.Library
	ctx   *native.Context
	sched *native.Scheduler
}

func newBench(t *testing.T) *bench {
	t.Helper()
	lib := nativetest.Library(t)
	backend, err := lib.NewBackend("")
	require.NoError(t, err)
	t.Cleanup(backend.Close)
	backend.SetThreads(2)
	sched, err := lib.NewScheduler(64, backend)
	require.NoError(t, err)
	t.Cleanup(sched.Close)
	ctx, err := lib.NewContext(64)
	require.NoError(t, err)
	t.Cleanup(ctx.Close)
	return &bench{lib: lib, ctx: ctx, sched: sched}
}

func (b *bench) input(d tensor.DType, ne ...int64) native.Tensor {
	x := b.ctx.New(d, ne...)
	b.ctx.SetInput(x)
	return x
}

func (b *bench) run(t *testing.T, out native.Tensor, fill func()) []float32 {
	t.Helper()
	require.NoError(t, b.ctx.Err())
	g, err := b.ctx.Graph(out)
	require.NoError(t, err)
	require.NoError(t, b.sched.Alloc(g))
	fill()
	require.NoError(t, b.sched.Run("a test"))
	dst := make([]float32, out.Elements())
	require.NoError(t, b.lib.GetFloats(out, dst))
	return dst
}

func wave(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)*0.7) * 2)
	}
	return x
}

func TestDevices(t *testing.T) {
	lib := nativetest.Library(t)
	devices := lib.Devices()
	require.NotEmpty(t, devices)
	var cpu *native.Device
	for i := range devices {
		if devices[i].Kind == native.CPU {
			cpu = &devices[i]
		}
	}
	require.NotNil(t, cpu)
	assert.Positive(t, cpu.Total)
	assert.NotEmpty(t, cpu.Features)
	_, err := lib.NewBackend("NoSuch0")
	require.ErrorIs(t, err, native.ErrNoDevice)
	assert.ErrorContains(t, err, cpu.Name)
}

func TestMulMatAgainstGo(t *testing.T) {
	b := newBench(t)
	const k, m, n = 5, 3, 4
	a, x := b.input(tensor.F32, k, m), b.input(tensor.F32, k, n, 2)
	out := b.ctx.MulMat(a, x)
	av, xv := wave(k*m), wave(k*n*2)
	got := b.run(t, out, func() {
		require.NoError(t, b.lib.SetFloats(a, av))
		require.NoError(t, b.lib.SetFloats(x, xv))
	})
	assert.Equal(t, [4]int64{m, n, 2, 1}, out.NE())
	for row := range n * 2 {
		for col := range m {
			var want float64
			for i := range k {
				want += float64(av[col*k+i]) * float64(xv[row*k+i])
			}
			assert.InDelta(t, want, got[row*m+col], 1e-4)
		}
	}
}

// Sums in f16 are close to those in f32, whichever side is larger.
func TestExactProduct(t *testing.T) {
	for _, n := range []int64{3, 40} {
		b := newBench(t)
		const k, m = 300, 20
		a, x := b.input(tensor.F16, k, m), b.input(tensor.F32, k, n, 2)
		half, full := b.ctx.MulMatExact(a, x, 3), b.ctx.MulMat(a, x)
		diff := b.ctx.Sub(half, full)
		av, xv := make([]byte, 2*k*m), wave(int(k*n*2))
		_, err := b.lib.QuantizeChunk(tensor.F16, wave(k*m), av, m, k, nil)
		require.NoError(t, err)
		assert.True(t, b.lib.IsMulMat(half))
		assert.False(t, b.lib.IsMulMat(diff))
		var worst float64
		for _, d := range b.run(t, diff, func() {
			require.NoError(t, b.lib.Set(a, av, 0))
			require.NoError(t, b.lib.SetFloats(x, xv))
		}) {
			worst = max(worst, math.Abs(float64(d)))
		}
		assert.Less(t, worst, 1.0)
		assert.Greater(t, worst, 1e-3, "f16 sums are not f32 sums")
	}
}

func TestConvolutionFromIm2Col(t *testing.T) {
	b := newBench(t)
	kernel, x := b.input(tensor.F16, 3, 3, 2, 1), b.input(tensor.F32, 4, 4, 2, 1)
	cols := b.ctx.Im2Col(kernel, x, 1, 1)
	out := b.ctx.MulMat(b.ctx.Reshape(cols, 18, 16), b.ctx.Reshape(kernel, 18, 1))
	got := b.run(t, out, func() {
		ones := make([]byte, 2*18)
		for i := 1; i < len(ones); i += 2 {
			ones[i] = 0x3c // 1.0
		}
		require.NoError(t, b.lib.Set(kernel, ones, 0))
		img := make([]float32, 32)
		for i := range img {
			img[i] = 1
		}
		require.NoError(t, b.lib.SetFloats(x, img))
	})
	assert.Equal(t, []float32{8, 12, 12, 8, 12, 18, 18, 12, 12, 18, 18, 12, 8, 12, 12, 8}, got)
}

func TestUnaryAndNorms(t *testing.T) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for name, c := range map[string]struct {
		op   func(*native.Context, native.Tensor) native.Tensor
		want func(float64) float64
	}{
		"silu":       {(*native.Context).SiLU, func(x float64) float64 { return x * sigmoid(x) }},
		"sigmoid":    {(*native.Context).Sigmoid, sigmoid},
		"gelu_quick": {(*native.Context).GELUQuick, func(x float64) float64 { return x * sigmoid(1.702*x) }},
		"tanh":       {(*native.Context).Tanh, math.Tanh},
		"relu":       {(*native.Context).ReLU, func(x float64) float64 { return max(x, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			x := b.input(tensor.F32, 8, 2)
			v := wave(16)
			got := b.run(t, c.op(b.ctx, x), func() { require.NoError(t, b.lib.SetFloats(x, v)) })
			for i := range v {
				assert.InDelta(t, c.want(float64(v[i])), got[i], 2e-3)
			}
		})
	}
	b := newBench(t)
	x := b.input(tensor.F32, 2, 2, 4, 1)
	got := b.run(t, b.ctx.GroupNorm(x, 2, 1e-6), func() { require.NoError(t, b.lib.SetFloats(x, wave(16))) })
	for g := range 2 {
		var sum, sq float64
		for _, v := range got[g*8 : g*8+8] {
			sum, sq = sum+float64(v), sq+float64(v)*float64(v)
		}
		assert.InDelta(t, 0, sum, 1e-5)
		assert.InDelta(t, 8, sq, 1e-3)
	}
}

func TestViewsSlicesAndHeads(t *testing.T) {
	b := newBench(t)
	x := b.input(tensor.F32, 4, 3)
	part := b.ctx.Cont(b.ctx.Slice(x, 0, 1, 3))
	v := wave(12)
	got := b.run(t, part, func() { require.NoError(t, b.lib.SetFloats(x, v)) })
	assert.Equal(t, []float32{v[1], v[2], v[5], v[6], v[9], v[10]}, got)
	assert.Equal(t, [4]int64{2, 2, 3, 1}, b.ctx.Heads(x, 2).NE())
	p := b.ctx.Permute(x, 1, 0, 2, 3)
	assert.Equal(t, [4]int64{3, 4, 1, 1}, p.NE())
	assert.False(t, p.Contiguous())
}

// What ggml would abort on becomes an error that says where.
func TestOpsRefuse(t *testing.T) {
	lib := nativetest.Library(t)
	type build func(c *native.Context) native.Tensor
	f32 := func(c *native.Context, ne ...int64) native.Tensor { return c.New(tensor.F32, ne...) }
	for name, c := range map[string]struct {
		build build
		want  string
	}{
		"row lengths": {func(c *native.Context) native.Tensor { return c.MulMat(f32(c, 4, 2), f32(c, 5, 2)) }, "rows of 4 and 5"},
		"batch":       {func(c *native.Context) native.Tensor { return c.MulMat(f32(c, 4, 2, 2), f32(c, 4, 2, 3)) }, "do not divide"},
		"transposed": {func(c *native.Context) native.Tensor {
			return c.MulMat(c.Permute(f32(c, 2, 4), 1, 0, 2, 3), f32(c, 4, 2))
		}, "rows are not contiguous"},
		"right type":  {func(c *native.Context) native.Tensor { return c.MulMat(f32(c, 4, 2), c.New(tensor.F16, 4, 2)) }, "must be f32"},
		"integers":    {func(c *native.Context) native.Tensor { return c.MulMat(c.New(tensor.I32, 4, 2), f32(c, 4, 2)) }, "not supported"},
		"broadcast":   {func(c *native.Context) native.Tensor { return c.Add(f32(c, 4), f32(c, 3)) }, "cannot be repeated"},
		"half add":    {func(c *native.Context) native.Tensor { return c.Add(f32(c, 4), c.New(tensor.F16, 4)) }, "expected f32"},
		"no tensor":   {func(c *native.Context) native.Tensor { return c.Add(f32(c, 4), native.Tensor{}) }, "operand 1 is no tensor"},
		"groups":      {func(c *native.Context) native.Tensor { return c.GroupNorm(f32(c, 2, 2, 5), 2, 1) }, "5 channels"},
		"reshape":     {func(c *native.Context) native.Tensor { return c.Reshape(f32(c, 4), 3) }, "reshape"},
		"permutation": {func(c *native.Context) native.Tensor { return c.Permute(f32(c, 4), 0, 0, 1, 2) }, "no permutation"},
		"slice":       {func(c *native.Context) native.Tensor { return c.Slice(f32(c, 4), 0, 2, 5) }, "elements 2 to 5"},
		"concat":      {func(c *native.Context) native.Tensor { return c.Concat(f32(c, 4, 2), f32(c, 3, 2), 1) }, "axis 0 differs"},
		"mask":        {func(c *native.Context) native.Tensor { return c.SoftMax(f32(c, 4, 4), f32(c, 4, 3), 1) }, "does not fit"},
		"channels": {func(c *native.Context) native.Tensor {
			return c.Im2Col(c.New(tensor.F16, 3, 3, 2, 1), f32(c, 4, 4, 3), 1, 1)
		}, "takes 2 channels"},
		"image": {func(c *native.Context) native.Tensor {
			return c.Im2Col(c.New(tensor.F16, 3, 3, 2, 1), f32(c, 2, 2, 2), 1, 0)
		}, "smaller than kernel"},
		"ids": {func(c *native.Context) native.Tensor { return c.GetRows(f32(c, 4, 4), f32(c, 2)) }, "do not fit"},
		"experts": {func(c *native.Context) native.Tensor {
			return c.MulMatID(f32(c, 4, 4, 2), f32(c, 4, 1, 3), c.New(tensor.I32, 2, 2))
		}, "do not go together"},
		"too many axes": {func(c *native.Context) native.Tensor { return f32(c, 1, 1, 1, 1, 1) }, "5 axes"},
		"scale": {func(c *native.Context) native.Tensor {
			return c.Scale(c.Permute(f32(c, 4, 3, 1, 5), 0, 1, 3, 2), 2)
		}, "reshape it first"},
		"blocks":   {func(c *native.Context) native.Tensor { return c.New(tensor.Q4_K, 100) }, "blocks of 256"},
		"overflow": {func(c *native.Context) native.Tensor { return f32(c, 1<<40, 1<<40) }, "overflows"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, err := lib.NewContext(8)
			require.NoError(t, err)
			defer ctx.Close()
			ctx.SetScope("block.7")
			assert.True(t, c.build(ctx).IsZero())
			require.ErrorContains(t, ctx.Err(), c.want)
			assert.ErrorContains(t, ctx.Err(), "block.7")
			_, err = ctx.Graph(ctx.New(tensor.F32, 1))
			assert.Error(t, err, "the first error stays")
		})
	}
	ctx, err := lib.NewContext(2)
	require.NoError(t, err)
	defer ctx.Close()
	ctx.New(tensor.F32, 1)
	ctx.New(tensor.F32, 1)
	ctx.New(tensor.F32, 1)
	assert.ErrorContains(t, ctx.Err(), "room for 2 tensors")
}

type watcher struct {
	want func(native.Tensor) bool
	seen func(native.Tensor) error
}

func (w watcher) Want(t native.Tensor) bool  { return w.want(t) }
func (w watcher) Seen(t native.Tensor) error { return w.seen(t) }

func TestObserverSeesProductsAndStops(t *testing.T) {
	b := newBench(t)
	w, x := b.input(tensor.F32, 4, 3), b.input(tensor.F32, 4, 2)
	b.ctx.SetName(w, "some.weight")
	out := b.ctx.SiLU(b.ctx.MulMat(w, b.ctx.SiLU(x)))
	fill := func() {
		require.NoError(t, b.lib.SetFloats(w, wave(12)))
		require.NoError(t, b.lib.SetFloats(x, wave(8)))
	}
	var names []string
	var rows []float32
	b.sched.Observe(watcher{b.lib.IsMulMat, func(t native.Tensor) error {
		names = append(names, t.Source(0).Name())
		rows = make([]float32, t.Source(1).Elements())
		return b.lib.GetFloats(t.Source(1), rows)
	}})
	b.run(t, out, fill)
	assert.Equal(t, []string{"some.weight"}, names)
	for i, v := range wave(8) {
		assert.InDelta(t, float64(v)/(1+math.Exp(-float64(v))), rows[i], 1e-3, "what the product was fed")
	}
	stop := errors.New("enough")
	b.sched.Observe(watcher{func(native.Tensor) bool { return true }, func(native.Tensor) error { return stop }})
	assert.ErrorIs(t, b.sched.Run("a test"), stop)
	b.sched.Observe(watcher{func(native.Tensor) bool { return true }, func(native.Tensor) error { panic("oops") }})
	assert.ErrorContains(t, b.sched.Run("a test"), "oops")
	b.sched.Observe(nil)
	require.NoError(t, b.sched.Run("a test"))
}

func TestStopper(t *testing.T) {
	lib := nativetest.Library(t)
	backend, err := lib.NewBackend("")
	require.NoError(t, err)
	defer backend.Close()
	sched, err := lib.NewScheduler(8, backend)
	require.NoError(t, err)
	defer sched.Close()
	ctx, err := lib.NewContext(8)
	require.NoError(t, err)
	defer ctx.Close()
	x := ctx.New(tensor.F32, 4)
	ctx.SetInput(x)
	g, err := ctx.Graph(ctx.SiLU(ctx.SiLU(x)))
	require.NoError(t, err)
	require.NoError(t, sched.Alloc(g))
	require.NoError(t, lib.SetFloats(x, wave(4)))
	stop := backend.Stopper()
	assert.Same(t, stop, backend.Stopper())
	require.NoError(t, sched.Run("a test"))
	stop.Store(true)
	require.ErrorIs(t, sched.Run("a test"), native.ErrStopped)
	stop.Store(false)
	require.NoError(t, sched.Run("a test"))
}

func TestGraphsGetMemoryOnce(t *testing.T) {
	b := newBench(t)
	x := b.input(tensor.F32, 4)
	first, err := b.ctx.Graph(b.ctx.SiLU(x))
	require.NoError(t, err)
	require.NoError(t, b.sched.Alloc(first))
	require.NoError(t, b.sched.Alloc(first))
	assert.False(t, first.Spent())
	other, err := b.lib.NewContext(8)
	require.NoError(t, err)
	defer other.Close()
	y := other.New(tensor.F32, 8)
	other.SetInput(y)
	second, err := other.Graph(other.SiLU(y))
	require.NoError(t, err)
	require.NoError(t, b.sched.Alloc(second))
	assert.True(t, first.Spent())
	assert.ErrorContains(t, b.sched.Alloc(first), "had memory before")
	b.sched.Release(second)
}

func TestTensorMemoryIsBounded(t *testing.T) {
	b := newBench(t)
	x := b.input(tensor.F32, 4)
	assert.ErrorContains(t, b.lib.SetFloats(x, make([]float32, 4)), "no memory yet")
	b.run(t, b.ctx.SiLU(x), func() { require.NoError(t, b.lib.SetFloats(x, wave(4))) })
	assert.Error(t, b.lib.Set(x, make([]byte, 8), 12))
	assert.Error(t, b.lib.Get(x, make([]byte, 8), -1))
	assert.Error(t, b.lib.GetFloats(x, make([]float32, 3)))
}

//go:build !noasm

package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/quant/internal/kernel"
	"github.com/sdtool/sdtool/tensor"
)

type convert = func(s *kernel.Set, dst []byte, src []float32, rows, cols int, weights []float32)

// quantizers are the kernels and the modes that they have.
var quantizers = []struct {
	d               tensor.DType
	f               convert
	plain, weighted bool
}{
	{tensor.Q4_0, (*kernel.Set).Q40, true, true},
	{tensor.Q5_0, (*kernel.Set).Q50, true, true},
	{tensor.Q4_1, (*kernel.Set).Q41, true, true},
	{tensor.Q5_1, (*kernel.Set).Q51, true, true},
	{tensor.Q8_0, (*kernel.Set).Q80, true, false},
	{tensor.Q1_0, (*kernel.Set).Q10, true, false},
	{tensor.Q2_0, (*kernel.Set).Q20, true, false},
	{tensor.TQ1_0, (*kernel.Set).TQ10, true, false},
	{tensor.TQ2_0, (*kernel.Set).TQ20, true, false},
	{tensor.MXFP4, (*kernel.Set).MXFP4, true, false},
	{tensor.NVFP4, (*kernel.Set).NVFP4, true, false},
	{tensor.IQ4_NL, (*kernel.Set).IQ4NL, true, true},
	{tensor.IQ4_XS, (*kernel.Set).IQ4XS, true, true},
	{tensor.Q3_K, (*kernel.Set).Q3K, true, true},
	{tensor.Q6_K, (*kernel.Set).Q6K, true, true},
	{tensor.Q2_K, (*kernel.Set).Q2K, true, true},
	{tensor.Q4_K, (*kernel.Set).Q4K, true, true},
	{tensor.Q5_K, (*kernel.Set).Q5K, true, true},
}

func sets(t testing.TB) (out []*kernel.Set) {
	for _, lanes := range []int{8, 16} {
		if s := kernel.Available(lanes); s != nil {
			out = append(out, s)
		}
	}
	if out == nil {
		t.Skip("this machine has no AVX2")
	}
	return out
}

// inputs are kinds of numbers that searches meet.
var inputs = []struct {
	name string
	f    func(rng *rand.Rand, i int) float64
}{
	{"normal", func(rng *rand.Rand, _ int) float64 { return 0.02 * rng.NormFloat64() }},
	{"uniform", func(rng *rand.Rand, _ int) float64 { return rng.Float64()*2 - 1 }},
	{"heavy tail", func(rng *rand.Rand, _ int) float64 { return 0.01 * rng.NormFloat64() * math.Pow(rng.Float64(), -0.7) }},
	{"positive", func(rng *rand.Rand, _ int) float64 { return 1 + 0.1*rng.NormFloat64() }},
	{"negative", func(rng *rand.Rand, _ int) float64 { return -1 + 0.1*rng.NormFloat64() }},
	{"bf16", func(rng *rand.Rand, _ int) float64 {
		return float64(math.Float32frombits(math.Float32bits(float32(rng.NormFloat64())) &^ 0xffff))
	}},
	{"few values", func(rng *rand.Rand, _ int) float64 { return float64(rng.IntN(5)-2) * 0.25 }},
	{"zero blocks", func(rng *rand.Rand, i int) float64 { return float64(min(1, i/32%3)) * rng.NormFloat64() }},
	{"zero sixteens", func(rng *rand.Rand, i int) float64 { return float64(min(1, i/16%4)) * rng.NormFloat64() }},
	{"zero super-blocks", func(rng *rand.Rand, i int) float64 { return float64(min(1, i/256%3)) * rng.NormFloat64() }},
	{"all zero", func(*rand.Rand, int) float64 { return 0 }},
	{"signed zeros", func(rng *rand.Rand, _ int) float64 { return math.Copysign(0, rng.Float64()-0.5) }},
	{"one hot", func(rng *rand.Rand, i int) float64 {
		if i%32 == int(math.Float64bits(float64(i/32))>>40%32) {
			return rng.NormFloat64()
		}
		return 0
	}},
	{"constant", func(*rand.Rand, int) float64 { return 0.7 }},
	{"constant-", func(*rand.Rand, int) float64 { return -0.3 }},
	{"denormal", func(rng *rand.Rand, _ int) float64 { return 1e-40 * rng.NormFloat64() }},
	{"1e-20", func(rng *rand.Rand, _ int) float64 { return 1e-20 * rng.NormFloat64() }},
	{"1e-15", func(rng *rand.Rand, _ int) float64 { return 1e-15 * rng.NormFloat64() }},
	{"1e-8", func(rng *rand.Rand, _ int) float64 { return 1e-8 * rng.NormFloat64() }},
	{"near f16 max", func(rng *rand.Rand, _ int) float64 { return 60000 * rng.NormFloat64() }},
	{"f16 overflow", func(rng *rand.Rand, _ int) float64 { return 1e8 * rng.NormFloat64() }},
	{"1e15", func(rng *rand.Rand, _ int) float64 { return 1e15 * rng.NormFloat64() }},
	{"1e30", func(rng *rand.Rand, _ int) float64 { return 1e30 * rng.NormFloat64() }},
	{"all sizes", func(rng *rand.Rand, _ int) float64 {
		return rng.NormFloat64() * math.Pow(10, 76*rng.Float64()-38)
	}},
	{"constant 1e15", func(*rand.Rand, int) float64 { return 1e15 }},
	{"mixed scales", func(rng *rand.Rand, i int) float64 { return rng.NormFloat64() * math.Pow(10, float64(i/32%9-4)) }},
	{"mixed within", func(rng *rand.Rand, i int) float64 { return rng.NormFloat64() * math.Pow(10, float64(i%9-4)) }},
}

// weightKinds are column weights; nil stands for none.
var weightKinds = []struct {
	name string
	f    func(rng *rand.Rand) float64
}{
	{"none", nil},
	{"ones", func(*rand.Rand) float64 { return 1 }},
	{"imatrix", func(rng *rand.Rand) float64 { return 0.01 + 50*math.Pow(rng.Float64(), 4) }},
	{"mostly zero", func(rng *rand.Rand) float64 { return float64(max(0, rng.IntN(8)-6)) }},
	{"zero", func(*rand.Rand) float64 { return 0 }},
	{"1e15", func(rng *rand.Rand) float64 { return 1e15 * rng.Float64() }},
	{"1e-30", func(rng *rand.Rand) float64 { return 1e-30 * rng.Float64() }},
}

// ggml quantizes with the linked library.
func ggml(t testing.TB, lib *native.Library, d tensor.DType, src []float32, rows, cols int, w []float32) []byte {
	t.Helper()
	out := make([]byte, rows*cols/int(d.Block())*int(d.BlockBytes()))
	_, err := lib.QuantizeChunk(d, src, out, int64(rows), int64(cols), w)
	require.NoError(t, err)
	return out
}

func TestSameBytesAsGGML(t *testing.T) {
	lib := nativetest.Library(t)
	for _, q := range quantizers {
		for _, s := range sets(t) {
			t.Run(fmt.Sprintf("%s/%d", q.d, s.Lanes()), func(t *testing.T) {
				for shape, blocks := range [][2]int{{1, 1}, {3, 2}, {1, 7}, {5, 8}, {1, 16}, {2, 19}} {
					for i, in := range inputs {
						for _, kind := range weightKinds {
							rows, cols := blocks[0], blocks[1]*int(q.d.Block())
							if kind.f == nil && !q.plain || kind.f != nil && !q.weighted {
								continue
							}
							rng := rand.New(rand.NewPCG(uint64(shape), uint64(i)))
							// Off any alignment, with canaries around.
							src := make([]float32, rows*cols+1+shape)[1+shape%3:][:rows*cols]
							for i := range src {
								src[i] = float32(max(-math.MaxFloat32, min(in.f(rng, i), math.MaxFloat32)))
							}
							var w []float32
							if kind.f != nil {
								w = make([]float32, cols+3)[3:]
								for i := range w {
									w[i] = float32(kind.f(rng))
								}
							}
							want := ggml(t, lib, q.d, src, rows, cols, w)
							buf := make([]byte, len(want)+64)
							for i := range buf {
								buf[i] = 0xa5
							}
							got := buf[29:][:len(want)]
							q.f(s, got, src, rows, cols, w)
							same(t, q.d, want, got, fmt.Sprintf("%s, %s, %d×%d blocks", in.name, kind.name, rows, blocks[1]))
							for i, b := range buf {
								if (i < 29 || i >= 29+len(want)) && b != 0xa5 {
									t.Fatalf("%s, %s: byte %d from the output's start was overwritten", in.name, kind.name, i-29)
								}
							}
						}
					}
				}
			})
		}
	}
}

func same(t *testing.T, d tensor.DType, want, got []byte, what string) {
	t.Helper()
	size := int(d.BlockBytes())
	for i := range want {
		if want[i] != got[i] {
			b := i / size
			t.Fatalf("%s: block %d differs at byte %d\nwant % x\ngot  % x", what, b, i%size, want[b*size:(b+1)*size], got[b*size:(b+1)*size])
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	const rows, cols = 64, 3072
	rng := rand.New(rand.NewPCG(1, 2))
	src, w := make([]float32, rows*cols), make([]float32, cols)
	for i := range src {
		src[i] = float32(0.02 * rng.NormFloat64())
	}
	for i := range w {
		w[i] = float32(0.01 + rng.Float64())
	}
	for _, q := range quantizers {
		dst := make([]byte, rows*cols/int(q.d.Block())*int(q.d.BlockBytes()))
		for mode, weights := range map[string][]float32{"plain": nil, "weighted": w} {
			if weights == nil && !q.plain || weights != nil && !q.weighted {
				continue
			}
			for _, s := range sets(b) {
				b.Run(fmt.Sprintf("%s/%s/%d", q.d, mode, s.Lanes()), func(b *testing.B) {
					for b.Loop() {
						q.f(s, dst, src, rows, cols, weights)
					}
					b.ReportMetric(float64(b.N)*rows*cols/b.Elapsed().Seconds()/1e6, "Mel/s")
				})
			}
			b.Run(fmt.Sprintf("%s/%s/ggml", q.d, mode), func(b *testing.B) {
				lib := nativetest.Library(b)
				for b.Loop() {
					_, err := lib.QuantizeChunk(q.d, src, dst, rows, cols, weights)
					require.NoError(b, err)
				}
				b.ReportMetric(float64(b.N)*rows*cols/b.Elapsed().Seconds()/1e6, "Mel/s")
			})
		}
	}
}

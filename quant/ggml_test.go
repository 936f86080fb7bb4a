package quant_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// quantized are the types that ggml_quantize_chunk makes.
func quantized() []tensor.DType {
	out := []tensor.DType{tensor.F16, tensor.BF16}
	for _, d := range tensor.All() {
		if d.IsQuantized() && d != tensor.Q8_1 && d != tensor.Q8_K {
			out = append(out, d)
		}
	}
	return out
}

// inputs are kinds of numbers that quantizers meet, by name.
var inputs = map[string]func(rng *rand.Rand, x []float32){
	"normal":  func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return 0.02 * rng.NormFloat64() }) },
	"uniform": func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return rng.Float64()*2 - 1 }) },
	"laplace": func(rng *rand.Rand, x []float32) {
		each(x, func(int) float64 { return sign(rng) * 0.05 * rng.ExpFloat64() })
	},
	"heavy tail": func(rng *rand.Rand, x []float32) {
		each(x, func(int) float64 { return sign(rng) * 0.01 * math.Pow(rng.Float64(), -0.7) })
	},
	"positive": func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return 1 + 0.1*rng.NormFloat64() }) },
	"negative": func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return -1 + 0.1*rng.NormFloat64() }) },
	"bf16": func(rng *rand.Rand, x []float32) {
		each(x, func(int) float64 {
			return float64(math.Float32frombits(math.Float32bits(float32(rng.NormFloat64())) &^ 0xffff))
		})
	},
	"few values": func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return float64(rng.IntN(5)-2) * 0.25 }) },
	"zero blocks": func(rng *rand.Rand, x []float32) {
		each(x, func(i int) float64 {
			if i/32%3 == 1 {
				return 0
			}
			return rng.NormFloat64()
		})
	},
	"zero sixteens": func(rng *rand.Rand, x []float32) {
		each(x, func(i int) float64 {
			if i/16%4 == 2 {
				return 0
			}
			return rng.NormFloat64()
		})
	},
	"all zero": func(_ *rand.Rand, x []float32) { clear(x) },
	"signed zeros": func(rng *rand.Rand, x []float32) {
		each(x, func(int) float64 { return math.Copysign(0, sign(rng)) })
	},
	"one hot": func(rng *rand.Rand, x []float32) {
		clear(x)
		for i := range len(x) / 32 {
			x[32*i+rng.IntN(32)] = float32(rng.NormFloat64())
		}
	},
	"constant":  func(_ *rand.Rand, x []float32) { each(x, func(int) float64 { return 0.7 }) },
	"constant-": func(_ *rand.Rand, x []float32) { each(x, func(int) float64 { return -0.3 }) },
	"denormal":  func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return 1e-40 * rng.NormFloat64() }) },
	"1e-20":     func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return 1e-20 * rng.NormFloat64() }) },
	"1e-8":      func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return 1e-8 * rng.NormFloat64() }) },
	"near f16 max": func(rng *rand.Rand, x []float32) {
		each(x, func(int) float64 { return 60000 * rng.NormFloat64() })
	},
	"f16 overflow": func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return 1e8 * rng.NormFloat64() }) },
	"random bits": func(rng *rand.Rand, x []float32) {
		for i := range x {
			x[i] = math.Float32frombits(rng.Uint32())
			// Neither NaN nor so large that ggml's grid searches abort.
			if !(abs32(x[i]) < 1e12) {
				x[i] = math.Float32frombits(math.Float32bits(x[i]) & 0xbfffffff)
			}
		}
	},
	"random near one": func(rng *rand.Rand, x []float32) {
		for i := range x {
			x[i] = math.Float32frombits(rng.Uint32()&0x83ffffff | 0x3c000000)
		}
	},
	"huge": func(rng *rand.Rand, x []float32) { each(x, func(int) float64 { return 1e12 * rng.NormFloat64() }) },
	"mixed scales": func(rng *rand.Rand, x []float32) {
		each(x, func(i int) float64 { return rng.NormFloat64() * math.Pow(10, float64(i/32%9-4)) })
	},
}

func each(x []float32, f func(int) float64) {
	for i := range x {
		x[i] = float32(f(i))
	}
}

func abs32(v float32) float32 { return float32(math.Abs(float64(v))) }

func sign(rng *rand.Rand) float64 { return float64(rng.IntN(2)*2 - 1) }

// modes are the weights that peers pass.
var modes = map[string]func(rng *rand.Rand, cols int64) []float32{
	"none": func(*rand.Rand, int64) []float32 { return nil },
	"ones": func(_ *rand.Rand, cols int64) []float32 {
		w := make([]float32, cols)
		each(w, func(int) float64 { return 1 })
		return w
	},
	"imatrix": func(rng *rand.Rand, cols int64) []float32 {
		w := make([]float32, cols)
		each(w, func(int) float64 { return 0.01 + 50*math.Pow(rng.Float64(), 4) })
		return w
	},
	"some zero": func(rng *rand.Rand, cols int64) []float32 {
		w := make([]float32, cols)
		each(w, func(i int) float64 { return float64(i/16%3) * rng.Float64() })
		return w
	},
	"zero": func(_ *rand.Rand, cols int64) []float32 { return make([]float32, cols) },
	"tiny": func(rng *rand.Rand, cols int64) []float32 {
		w := make([]float32, cols)
		each(w, func(int) float64 { return 1e-20 * rng.Float64() })
		return w
	},
}

// ggml quantizes with the linked library.
func ggml(t testing.TB, lib *native.Library, d tensor.DType, src []float32, rows, cols int64, w []float32) []byte {
	t.Helper()
	out := make([]byte, rows*cols/d.Block()*d.BlockBytes())
	_, err := lib.QuantizeChunk(d, src, out, rows, cols, w)
	require.NoError(t, err)
	return out
}

// onEachCPU runs f with every set of kernels that this machine can run.
func onEachCPU(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer func() { require.NoError(t, quant.UseCPU(quant.DetectCPU())) }()
	for cpu := quant.Generic; cpu <= quant.DetectCPU(); cpu++ {
		require.NoError(t, quant.UseCPU(cpu))
		t.Run(cpu.String(), f)
	}
}

func TestSameBytesAsGGML(t *testing.T) {
	lib := nativetest.Library(t)
	onEachCPU(t, func(t *testing.T) {
		for _, d := range quantized() {
			t.Run(d.String(), func(t *testing.T) {
				t.Parallel()
				for name, fill := range inputs {
					for mode := range modes {
						for _, blocks := range []int64{1, 2, 7} {
							sameBytes(t, lib, d, name, mode, blocks, fill)
						}
					}
				}
			})
		}
	})
}

func sameBytes(t *testing.T, lib *native.Library, d tensor.DType, name, mode string, blocks int64, fill func(*rand.Rand, []float32)) {
	t.Helper()
	c := quant.Lookup(d)
	rows, cols := int64(3), max(blocks*d.Block(), 32)
	rng := rand.New(rand.NewPCG(uint64(blocks), uint64(len(name))))
	src := make([]float32, rows*cols)
	fill(rng, src)
	w := modes[mode](rng, cols)
	if w == nil && c.NeedsWeights || !c.UsesWeights && mode != "none" && mode != "imatrix" {
		return
	}
	want := ggml(t, lib, d, src, rows, cols, w)
	got := make([]byte, len(want))
	_, err := c.QuantizeExact(got, src, rows, cols, w)
	require.NoError(t, err)
	if at := firstDifference(want, got); at >= 0 {
		size := int(d.BlockBytes())
		b := at / size
		t.Fatalf("%s, %s, %d blocks: block %d differs at byte %d\nwant % x\ngot  % x", name, mode, blocks, b, at%size,
			want[b*size:min((b+1)*size, len(want))], got[b*size:min((b+1)*size, len(got))])
	}
	if d.IsQuantized() {
		compareDecoded(t, lib, d, want, fmt.Sprintf("%s, %s", name, mode))
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func compareDecoded(t *testing.T, lib *native.Library, d tensor.DType, raw []byte, what string) {
	t.Helper()
	n := int64(len(raw)) / d.BlockBytes() * d.Block()
	want, got := make([]float32, n), make([]float32, n)
	require.NoError(t, lib.ToFloat(d, raw, want))
	require.NoError(t, quant.Lookup(d).Dequantize(got, raw))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] == want[i] || got[i] == got[i]) {
			t.Fatalf("%s %s: element %d decodes to %v, ggml says %v", d, what, i, got[i], want[i])
		}
	}
}

// Any bytes are a block: decoding them must agree too.
func TestDequantizeRandomBlocks(t *testing.T) {
	lib := nativetest.Library(t)
	onEachCPU(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, d := range quantized() {
			for _, blocks := range []int64{1, 2, 3, 5, 300} {
				raw := make([]byte, blocks*d.BlockBytes())
				for i := range raw {
					raw[i] = byte(rng.Uint32())
				}
				compareDecoded(t, lib, d, raw, "random")
			}
		}
	})
}

func TestTableAgreesWithGGML(t *testing.T) {
	lib := nativetest.Library(t)
	for _, d := range quantized() {
		c := quant.Lookup(d)
		require.True(t, c.CanQuantize && c.CanDequantize, d)
		id, ok := d.GGML()
		require.True(t, ok, d)
		require.Equal(t, lib.RequiresImatrix(id), c.NeedsWeights, d)
	}
	// Whatever the library has that ggml_quantize_chunk makes is in our table.
	for id := int32(0); lib.HasType(id) || id < 40; id++ {
		d, ok := tensor.FromGGML(id)
		if name := lib.TypeName(id); lib.HasType(id) && lib.BlockSize(id) > 0 {
			require.True(t, ok, "type %d %q is not in the table", id, name)
			require.Equal(t, name, d.String())
			require.Equal(t, lib.BlockSize(id), d.Block(), name)
			require.Equal(t, lib.TypeSize(id), d.BlockBytes(), name)
		}
	}
}

func FuzzSameBytesAsGGML(f *testing.F) {
	types := quantized()
	f.Add(byte(5), byte(0), []byte("some bytes that become floats, and again the same bytes"))
	f.Add(byte(20), byte(2), bytes.Repeat([]byte{0, 0, 0x80, 0x3f, 1, 2, 3, 0x40}, 40))
	f.Fuzz(func(t *testing.T, kind, mode byte, raw []byte) {
		lib := nativetest.Library(t)
		d := types[int(kind)%len(types)]
		c := quant.Lookup(d)
		cols := max(d.Block(), 256)
		src := make([]float32, cols)
		for i := range src {
			var b [4]byte
			for k := range b {
				if len(raw) > 0 {
					b[k] = raw[(4*i+k)%len(raw)]
				}
			}
			v := math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
			if v != v || math.Abs(float64(v)) > 1e12 { // far beyond, the grid searches of ggml abort
				v = float32(b[0]) - 100
			}
			src[i] = v
		}
		var w []float32
		switch mode % 3 {
		case 1:
			w = modes["ones"](nil, cols)
		case 2:
			w = make([]float32, cols)
			for i := range w {
				if len(raw) > 0 {
					w[i] = float32(raw[(i*7+3)%len(raw)]) / 16
				}
			}
		}
		if w == nil && c.NeedsWeights {
			return
		}
		want := ggml(t, lib, d, src, 1, cols, w)
		for cpu := quant.Generic; cpu <= quant.DetectCPU(); cpu++ {
			require.NoError(t, quant.UseCPU(cpu))
			got := make([]byte, len(want))
			_, err := c.QuantizeExact(got, src, 1, cols, w)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s mode %d on %s", d, mode%3, cpu)
		}
	})
}

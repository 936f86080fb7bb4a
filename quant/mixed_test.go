package quant_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// Rows that mix all kinds of input, so that neighbouring blocks, which kernels
// work on side by side, take different ways.
func TestMixedInputsGiveGGMLBytes(t *testing.T) {
	lib := nativetest.Library(t)
	var kinds []string
	for name := range inputs {
		kinds = append(kinds, name)
	}
	slices.Sort(kinds)
	rounds := 6
	if testing.Short() {
		rounds = 1
	}
	onEachCPU(t, func(t *testing.T) {
		for _, d := range quantized() {
			t.Run(d.String(), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(21, uint64(d)))
				for range rounds {
					rows, cols := 1+rng.Int64N(20), max(d.Block(), 256)*(1+rng.Int64N(3))
					src := make([]float32, rows*cols)
					var names []string // of the kind of each 32
					for at := range len(src) / 32 {
						if at == 0 || rng.IntN(3) == 0 {
							names = append(names, kinds[rng.IntN(len(kinds))])
						} else {
							names = append(names, names[at-1])
						}
						inputs[names[at]](rng, src[32*at:32*at+32])
					}
					for _, mode := range []string{"none", "ones", "imatrix", "powers", "some zero"} {
						mixedSame(t, lib, d, mode, rng, src, rows, cols, names)
					}
				}
			})
		}
	})
}

func mixedSame(t *testing.T, lib *native.Library, d tensor.DType, mode string, rng *rand.Rand, src []float32, rows, cols int64, names []string) {
	t.Helper()
	c := quant.Lookup(d)
	var w []float32
	if mode == "powers" {
		w = make([]float32, cols)
		each(w, func(int) float64 { return math.Exp2(float64(rng.IntN(60) - 40)) })
	} else {
		w = modes[mode](rng, cols)
	}
	if w == nil && c.NeedsWeights || !c.UsesWeights && mode != "none" {
		return
	}
	want := ggml(t, lib, d, src, rows, cols, w)
	got := make([]byte, len(want))
	_, err := c.QuantizeExact(got, src, rows, cols, w)
	require.NoError(t, err)
	if at := firstDifference(want, got); at >= 0 {
		block := int64(at) / d.BlockBytes()
		from, to := block*d.Block(), (block+1)*d.Block()
		t.Fatalf("%s: block %d of %d rows of %d differs at its byte %d; it holds %q\nwant % x\ngot  % x\nx = %v", mode, block, rows, cols, int64(at)%d.BlockBytes(),
			names[from/32:(to+31)/32], want[block*d.BlockBytes():(block+1)*d.BlockBytes()], got[block*d.BlockBytes():(block+1)*d.BlockBytes()], src[from:min(to, from+32)])
	}
}

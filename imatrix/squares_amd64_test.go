//go:build !noasm

package imatrix

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/cpu"
)

func TestSquaresKernelsEqualTheirTwin(t *testing.T) {
	kernels := map[string]squaresKernel{}
	if cpu.X86.HasAVX2 {
		kernels["avx2"] = squares256
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL {
		kernels["avx512"] = squares512
	}
	if len(kernels) == 0 {
		t.Skip("this processor has no AVX2: only the twin runs here")
	}
	r := rand.New(rand.NewPCG(3, 4))
	const canary = 12345.0
	for name, k := range kernels {
		for _, cols := range []int{1, 31, 32, 33, 63, 64, 65, 128, 200, 320} {
			for _, count := range []int{0, 1, 7, 8, 9, 20} {
				for _, gap := range []int{0, 1, 5} {
					rows := randomRows(r, count, cols, cols+gap)
					want, got := make([]float64, cols), make([]float64, cols+1)
					for j := range want {
						want[j] = r.Float64()
						got[j] = want[j]
					}
					got[cols] = canary
					wantSkipped := addSquaresGeneric(want, rows)
					gotSkipped := k.add(got[:cols:cols], rows)
					what := fmt.Sprintf("%s: %d rows of %d at %d", name, count, cols, cols+gap)
					assert.Equal(t, wantSkipped, gotSkipped, what)
					assert.Equal(t, want, got[:cols], what)
					assert.Equal(t, canary, got[cols], what)
				}
			}
		}
	}
}

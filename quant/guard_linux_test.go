package quant_test

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// fenced returns n bytes that no other memory follows (or, atStart, precedes):
// the process dies if they are left by one byte, be it to read.
func fenced(t *testing.T, n int, atStart bool) []byte {
	t.Helper()
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(all)) })
	require.NoError(t, unix.Mprotect(all[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(all[page+size:], unix.PROT_NONE))
	if atStart {
		return all[page : page+n : page+n]
	}
	return all[page+size-n : page+size : page+size]
}

func fencedFloats(t *testing.T, n int, atStart bool) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&fenced(t, 4*n, atStart)[0])), n)
}

// Kernels stay within what they are given, also where they only read.
func TestKernelsStayInside(t *testing.T) {
	defer func() { require.NoError(t, quant.UseCPU(quant.DetectCPU())) }()
	for _, d := range tensor.All() {
		c := quant.Lookup(d)
		if !c.CanDequantize {
			continue
		}
		for _, blocks := range []int64{1, 5, 16, 37} {
			for _, atStart := range []bool{false, true} {
				cols := blocks * d.Block()
				raw := fenced(t, int(blocks*d.BlockBytes()), atStart)
				x := fencedFloats(t, int(cols), atStart)
				for cpu := quant.Generic; cpu <= quant.DetectCPU(); cpu++ {
					require.NoError(t, quant.UseCPU(cpu))
					if c.CanQuantize {
						inputs["normal"](rand.New(rand.NewPCG(1, 1)), x)
						w := fencedFloats(t, int(cols), atStart)
						each(w, func(int) float64 { return 1 })
						for _, w := range [][]float32{w, nil} {
							if w == nil && c.NeedsWeights || w != nil && !c.UsesWeights {
								continue
							}
							_, err := c.QuantizeExact(raw, x, 1, cols, w)
							require.NoError(t, err)
						}
					}
					require.NoError(t, c.Dequantize(x, raw))
				}
			}
		}
	}
}

//go:build !amd64 || noasm

package lanesum

func dot16Blocks(a []float32, b []uint16) float32 { return dot16Generic(a, b) }

// Widen turns f16 bits into float32; dst is as long as src.
func Widen(dst []float32, src []uint16) { widenGeneric(dst, src) }

// Narrow rounds float32 to f16 bits; dst is as long as src.
func Narrow(dst []uint16, src []float32) { narrowGeneric(dst, src) }

func dot32Blocks(a, b []float32) float32 { return dot32Generic(a, b) }

func tail(a []float32, b []uint16) float64 { return tailGeneric(a, b) }

// Accelerated reports whether the kernels run on this machine.
func Accelerated() bool { return false }

//go:build amd64 && !noasm

package lanesum

import "golang.org/x/sys/cpu"

// Accelerated reports whether the kernels run on this machine.
func Accelerated() bool { return fast }

var fast = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasFMA

// dot16AVX512 is the kernel of dot16Generic, for n a positive multiple of 128.
//
//go:noescape
func dot16AVX512(a *float32, b *uint16, n int) float32

// tailAVX512 adds up n products in f64, n a positive multiple of 16.
//
//go:noescape
func tailAVX512(a *float32, b *uint16, n int) float64

// tail adds up the products that fill no block.
func tail(a []float32, b []uint16) float64 {
	var sum float64
	done := 0
	if fast && len(a) >= 16 {
		done = len(a) &^ 15
		sum = tailAVX512(&a[0], &b[0], done)
	}
	return sum + tailGeneric(a[done:], b[done:])
}

// dot32AVX512 is the kernel of dot32Generic, for n a positive multiple of 64.
//
//go:noescape
func dot32AVX512(a, b *float32, n int) float32

func dot32Blocks(a, b []float32) float32 {
	if fast {
		return dot32AVX512(&a[0], &b[0], len(a))
	}
	return dot32Generic(a, b)
}

// wideAVX512 widens n f16 numbers, n a positive multiple of 16.
//
//go:noescape
func wideAVX512(dst *float32, src *uint16, n int)

// narrowAVX512 rounds n float32 numbers to f16, n a positive multiple of 16.
//
//go:noescape
func narrowAVX512(dst *uint16, src *float32, n int)

func dot16Blocks(a []float32, b []uint16) float32 {
	if fast {
		return dot16AVX512(&a[0], &b[0], len(a))
	}
	return dot16Generic(a, b)
}

// Widen turns f16 bits into float32; dst is as long as src.
func Widen(dst []float32, src []uint16) {
	done := 0
	if fast && len(src) >= 16 {
		done = len(src) &^ 15
		_ = dst[:len(src)]
		wideAVX512(&dst[0], &src[0], done)
	}
	widenGeneric(dst[done:], src[done:])
}

// Narrow rounds float32 to f16 bits; dst is as long as src.
func Narrow(dst []uint16, src []float32) {
	done := 0
	if fast && len(src) >= 16 {
		done = len(src) &^ 15
		_ = dst[:len(src)]
		narrowAVX512(&dst[0], &src[0], done)
	}
	narrowGeneric(dst[done:], src[done:])
}

package lanesum

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func rows(n int, scale float64) ([]float32, []uint16) {
	a, b := make([]float32, n), make([]uint16, n)
	for i := range a {
		a[i] = roundTo(float32(scale * math.Sin(float64(i)*1.7)))
		b[i] = Round(float32(math.Cos(float64(i*i%977) * 0.3)))
	}
	return a, b
}

func TestKernelEqualsItsTwin(t *testing.T) {
	for _, n := range []int{128, 256, 384, 1280, 2880 &^ 127, 11520} {
		for _, scale := range []float64{1, 1e-6, 30, 300} {
			a, b := rows(n, scale)
			assert.Equal(t, math.Float32bits(dot16Generic(a, b)), math.Float32bits(dot16Blocks(a, b)), "n %d, scale %g", n, scale)
		}
	}
}

func TestKernel32EqualsItsTwin(t *testing.T) {
	for _, n := range []int{64, 128, 320, 1280} {
		a, _ := rows(n, 3)
		b, _ := rows(n+1, 0.1)
		assert.Equal(t, dot32Generic(a, b[1:]), dot32Blocks(a, b[1:]), "n %d", n)
	}
}

func TestTails(t *testing.T) {
	for n := 1; n < 128; n++ {
		a, b := rows(n, 2)
		assert.Equal(t, tailGeneric(a, b), tail(a, b), "n %d", n)
	}
}

func TestShortRowsAreExact(t *testing.T) {
	a, b := rows(36, 1)
	var want float64
	wide := make([]float32, len(b))
	Widen(wide, b)
	for i := range a {
		want += float64(a[i]) * float64(wide[i])
	}
	assert.Equal(t, float32(want), Dot16(a, b))
}

func TestLongRowsRound(t *testing.T) {
	a, b := rows(2880, 1)
	var want float64
	wide := make([]float32, len(b))
	Widen(wide, b)
	for i := range a {
		want += float64(a[i]) * float64(wide[i])
	}
	got := Dot16(a, b)
	assert.InDelta(t, want, got, 0.3)
	assert.NotEqual(t, float32(want), got)
}

func TestNarrowAndWiden(t *testing.T) {
	x := []float32{0, 1, -2.5, 65504, 65520, 1e-8, 6e-8, float32(math.Inf(-1)), 0.1, 2049, 2051, 3, 4, 5, 6, 7, 8, 0.333}
	h, generic := make([]uint16, len(x)), make([]uint16, len(x))
	Narrow(h, x)
	narrowGeneric(generic, x)
	assert.Equal(t, generic, h)
	w := make([]float32, len(x))
	Widen(w, h)
	assert.Equal(t, []float32{0, 1, -2.5, 65504}, w[:4])
	assert.True(t, math.IsInf(float64(w[4]), 1))
}

func BenchmarkDot16(b *testing.B) {
	x, y := rows(2880, 1)
	b.SetBytes(2880)
	for b.Loop() {
		Dot16(x, y)
	}
}

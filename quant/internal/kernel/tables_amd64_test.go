//go:build !noasm

package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// floorLog2 leaves out the logarithm where it cannot matter.
func TestFloorLog2EqualsTheLogarithm(t *testing.T) {
	check := func(bits uint32) {
		x := math.Float32frombits(bits)
		want := int32(math.Floor(float64(float32(math.Log2(float64(x))))))
		require.Equal(t, want, floorLog2(x), "%x", bits)
	}
	for e := range uint32(255) {
		for m := range uint32(600) {
			check(e<<23 | 0x7fffff - m)
			if m > 0 || e > 0 {
				check(e<<23 | m)
			}
		}
		for m := uint32(1); m < 1<<23; m += 99991 {
			check(e<<23 | m)
		}
	}
}

// The borders between iq4's values are the points half way, to the last bit.
func TestIQ4BordersAreExact(t *testing.T) {
	for k := 1; k < 16; k++ {
		low, high := iq4Values[k-1], iq4Values[k]
		x := (low + high) / 2
		for range 100 {
			x = math.Nextafter32(x, low)
		}
		for range 200 {
			want := k
			if x-low < high-x { // as ggml's best_index_int8
				want = k - 1
			}
			require.Equal(t, want, iq4Code(x), "%v", x)
			x = math.Nextafter32(x, high)
		}
	}
}

// packed lookup and the levels it stands for.
func TestGridPack(t *testing.T) {
	two, three := &Grid{bits: 2}, &Grid{bits: 3}
	require.Equal(t, uint32(0b10_01_00_10_01_01_00_10), two.pack([]byte{2, 0, 1, 1, 2, 0, 1, 2}))
	require.Equal(t, uint32(0b111_000_101_010), three.pack([]byte{2, 5, 0, 7}))
}

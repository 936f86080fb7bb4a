//go:build !noasm

package imatrix

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:generate go generate -C _gen .

// squaresKernel is a generated kernel and the columns one of its strips spans.
type squaresKernel struct {
	run   func(sums *float64, data *float32, rows, stride, strips int) int64
	strip int
}

var (
	squares256 = squaresKernel{squaresAVX2, 32}
	squares512 = squaresKernel{squaresAVX512, 64}
)

// tileRows is how many rows a kernel walks before it moves to the next strip:
// enough to make reading and writing the sums cheap, few enough that the
// processor's prefetchers follow every row.
const tileRows = 8

// addSquares picks the widest kernel that the processor has.
func addSquares(sums []float64, rows Rows) int64 {
	switch {
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL:
		return squares512.add(sums, rows)
	case cpu.X86.HasAVX2:
		return squares256.add(sums, rows)
	}
	return addSquaresGeneric(sums, rows)
}

func (k squaresKernel) add(sums []float64, rows Rows) (skipped int64) {
	strips := rows.Cols / k.strip
	wide := strips * k.strip
	for first := 0; first < rows.Count; first += tileRows {
		tile := Rows{Data: rows.Data[first*rows.Stride:], Count: min(tileRows, rows.Count-first), Cols: rows.Cols, Stride: rows.Stride}
		if strips > 0 {
			skipped += k.run(&sums[0], &tile.Data[0], tile.Count, tile.Stride*int(unsafe.Sizeof(float32(0))), strips)
		}
		if wide < rows.Cols {
			tile.Data, tile.Cols = tile.Data[wide:], rows.Cols-wide
			skipped += addSquaresGeneric(sums[wide:], tile)
		}
	}
	return skipped
}

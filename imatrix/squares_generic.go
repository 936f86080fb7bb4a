package imatrix

import "math"

// addSquaresGeneric adds x² of every row to sums, in float64: the square of a
// float32 is exact there, so each column's sum is the rows' in order, rounded
// once per addition. Values that are not finite are left out and counted.
func addSquaresGeneric(sums []float64, rows Rows) (skipped int64) {
	for r := 0; r < rows.Count; r++ {
		row := rows.Data[r*rows.Stride:][:rows.Cols]
		for j, x := range row {
			if math.Float32bits(x)&0x7f800000 == 0x7f800000 {
				skipped++
				continue
			}
			v := float64(x)
			sums[j] += float64(v * v)
		}
	}
	return skipped
}

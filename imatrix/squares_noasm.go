//go:build !amd64 || noasm

package imatrix

func addSquares(sums []float64, rows Rows) int64 { return addSquaresGeneric(sums, rows) }

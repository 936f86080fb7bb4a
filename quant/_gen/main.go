// Command _gen writes the SIMD kernels of package quant/internal/kernel. Run it
// through `go generate` there.
package main

import . "github.com/mmcloughlin/avo/build"

//go:generate go run . -out ../internal/kernel/kernels_amd64.s -stubs ../internal/kernel/stubs_amd64.go -pkg kernel

func main() {
	ConstraintExpr("!noasm")
	for _, g := range isas {
		g.transpose()
		g.gather()
		g.sumSquares()
		g.weights()
		g.qkx("qkx", false, 2)
		g.qkx("qkxMAD", true, 2)
		g.qx("qx", true)
		g.qx("qxAny", false)
		g.q3()
		g.qp()
		g.requantize()
		g.halves()
		g.extremes()
		g.affine()
		g.signs()
		g.fp4()
		g.iq4()
		g.trials(2, 8, 2)
		g.trials(3, 4, 7)
		g.gridSums()
		g.plain()
		g.decoders()
		g.iq1()
		g.iq1Decoders()
	}
	Generate()
}

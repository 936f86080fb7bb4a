// Command _gen writes squares_amd64.s: the kernels that add squared activations
// to float64 column sums. Run it through `go generate` in package imatrix.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

//go:generate go run . -out ../squares_amd64.s -stubs ../squares_stubs_amd64.go -pkg imatrix

func main() {
	ConstraintExpr("!noasm")
	exponent := GLOBL("exponentMask", RODATA|NOPTR)
	DATA(0, U32(0x7f800000))
	kernel("AVX2", exponent, 4, YMM, func() reg.VecVirtual { return XMM() })
	kernel("AVX512", exponent, 8, ZMM, func() reg.VecVirtual { return YMM() })
	Generate()
}

// accumulators is the number of float64 registers of one strip.
const accumulators = 8

// kernel emits squares<level>: for each strip of accumulators·lanes columns it
// holds the sums in registers while it walks down the rows. One column is one
// lane throughout, so its additions happen in row order as in the twin. Masking
// a value that is not finite to +0 leaves its sum as it is.
func kernel(level string, exponent Mem, lanes int, wide, narrow func() reg.VecVirtual) {
	name := "squares" + level
	TEXT(name, NOSPLIT, "func(sums *float64, data *float32, rows, stride, strips int) (skipped int64)")
	Doc(fmt.Sprintf("%s adds the squares of rows×(strips·%d) values to sums; stride is in bytes.", name, accumulators*lanes),
		"Its twin is addSquaresGeneric.")
	sums, data := Load(Param("sums"), GP64()), Load(Param("data"), GP64())
	rows, stride, strips := Load(Param("rows"), GP64()), Load(Param("stride"), GP64()), Load(Param("strips"), GP64())

	mask, counts := narrow(), narrow()
	VPBROADCASTD(exponent, mask)
	VPXOR(counts, counts, counts)

	Label("strip")
	TESTQ(strips, strips)
	JZ(LabelRef("done"))
	acc := make([]reg.VecVirtual, accumulators)
	for i := range acc {
		acc[i] = wide()
		VMOVUPD(Mem{Base: sums, Disp: i * lanes * 8}, acc[i])
	}
	row, left := GP64(), GP64()
	MOVQ(data, row)
	MOVQ(rows, left)

	Label("row")
	for i := range acc {
		x, bad, square := narrow(), narrow(), wide()
		VMOVUPS(Mem{Base: row, Disp: i * lanes * 4}, x)
		VPAND(mask, x, bad)
		VPCMPEQD(mask, bad, bad)
		VPSUBD(bad, counts, counts)
		VPANDN(x, bad, x)
		VCVTPS2PD(x, square)
		VMULPD(square, square, square)
		VADDPD(square, acc[i], acc[i])
	}
	ADDQ(stride, row)
	DECQ(left)
	JNZ(LabelRef("row"))

	for i := range acc {
		VMOVUPD(acc[i], Mem{Base: sums, Disp: i * lanes * 8})
	}
	ADDQ(U32(accumulators*lanes*8), sums)
	ADDQ(U32(accumulators*lanes*4), data)
	DECQ(strips)
	JMP(LabelRef("strip"))

	Label("done")
	total := GP32()
	half := XMM()
	if lanes == 8 {
		VEXTRACTI128(U8(1), counts, half)
		sum := XMM()
		VPADDD(counts.AsX(), half, sum)
		counts = sum
	}
	VPSHUFD(U8(0b_01_00_11_10), counts.AsX(), half)
	VPADDD(half, counts.AsX(), half)
	other := XMM()
	VPSHUFD(U8(0b_10_11_00_01), half, other)
	VPADDD(other, half, half)
	VMOVD(half, total)
	VZEROUPPER()
	Store(total.As64(), ReturnIndex(0))
	RET()
}

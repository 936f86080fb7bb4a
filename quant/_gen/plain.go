package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Conversions of single numbers.

// bytesOut stores the low bytes of a register's integers, which are below 256.
func (g *isa) bytesOut(l reg.VecVirtual, to Mem) {
	if g.wide() {
		VPMOVDB(l, to)
		return
	}
	high := XMM()
	VEXTRACTI128(U8(1), l, high)
	VPACKUSDW(high, l.AsX(), high)
	VPACKUSWB(high, high, high)
	VMOVQ(high, to)
}

// right and left shift integers.
func (g *isa) right(a Op, n uint8) reg.VecVirtual {
	r := g.vec()
	VPSRLD(U8(n), a, r)
	return r
}

func (g *isa) left(a Op, n uint8) reg.VecVirtual {
	r := g.vec()
	VPSLLD(U8(n), a, r)
	return r
}

// stream emits a loop over n numbers, a multiple of unroll registers.
func (g *isa) stream(unroll, dstSize, srcSize int, body func(dst, src Mem)) {
	dst, src, n := param("dst"), param("src"), param("n")
	Label("number")
	for i := range unroll {
		body(Mem{Base: dst, Disp: i * g.v * dstSize}, Mem{Base: src, Disp: i * g.v * srcSize})
	}
	ADDQ(U32(uint32(unroll*g.v*dstSize)), dst)
	ADDQ(U32(uint32(unroll*g.v*srcSize)), src)
	SUBQ(U32(uint32(unroll*g.v)), n)
	JG(LabelRef("number"))
	g.end()
}

// streamUnroll is how many registers of numbers a turn of a stream's loop takes.
const streamUnroll = 2

func (g *isa) plain() {
	half := func() reg.VecVirtual {
		if g.wide() {
			return YMM()
		}
		return XMM()
	}
	g.begin("toBrain", "dst *uint16, src *float32, n int", "rounds to bfloat16 in strips of two registers.")
	size, infinity, most, one, quiet := g.full(0x7fffffff), g.full(0x7f800000), g.full(0x7fff), g.full(1), g.full(64)
	g.stream(streamUnroll, 2, 4, func(dst, src Mem) {
		x := g.load(src)
		top := g.right(x, 16)
		r := g.right(g.addI(g.addI(x, most), g.and(top, one)), 16)
		// As integers, sizes order like the numbers.
		g.gtI(g.and(x, size), infinity).put(g.or(top, quiet), r)
		if g.wide() {
			VPMOVDW(r, dst)
		} else {
			high := XMM()
			VEXTRACTI128(U8(1), r, high)
			VPACKUSDW(high, r.AsX(), high)
			VMOVUPS(high, dst)
		}
	})

	g.begin("fromBrain", "dst *float32, src *uint16, n int", "widens bfloat16 in strips of two registers.")
	g.stream(streamUnroll, 4, 2, func(dst, src Mem) {
		x := g.vec()
		VPMOVZXWD(src, x)
		VMOVUPS(g.left(x, 16), dst)
	})

	g.begin("fromE4M3", "dst *float32, src *byte, n int", "widens F8_E4M3 in strips of two registers.")
	by, nan, sign, limit := g.float(256), g.full(0x7fc00000), g.full(0x80000000), g.float(480)
	size = g.full(0x7fffffff)
	halfSign := half()
	VPBROADCASTW(constant(0x00008000), halfSign)
	g.stream(streamUnroll, 4, 1, func(dst, src Mem) {
		// sEEEEMMM as half precision, whose exponents are 8 less. The byte is in the
		// upper half of the word, its sign in place.
		b, s, x := half(), half(), g.vec()
		VPMOVZXBW(src, b)
		VPSLLW(U8(8), b, b)
		VPAND(halfSign, b, s)
		VPSLLW(U8(1), b, b)
		VPSRLW(U8(2), b, b)
		VPOR(s, b, b)
		VCVTPH2PS(b, x)
		VMULPS(by, x, x)
		g.cmp(ge, g.and(x, size), limit).put(g.or(g.and(x, sign), nan), x)
		VMOVUPS(x, dst)
	})

	g.begin("fromE5M2", "dst *float32, src *byte, n int", "widens F8_E5M2 in strips of two registers.")
	nan, sign = g.full(0x7fc00000), g.full(0x80000000)
	g.stream(streamUnroll, 4, 1, func(dst, src Mem) {
		b, x := half(), g.vec()
		VPMOVZXBW(src, b)
		VPSLLW(U8(8), b, b)
		VCVTPH2PS(b, x)
		g.cmp(un, x, x).put(g.or(g.and(x, sign), nan), x)
		VMOVUPS(x, dst)
	})
	g.toF8("toE4M3", 3, 7, 0x43e00000, 0x7e, 0x7f)
	g.toF8("toE5M2", 2, 15, 0x47700000, 0x7c, 0x7e)

	g.begin("countFrom", "counts *uint32, src *float32, n int, limit *uint32", "adds to each lane of counts the numbers whose size, as bits, is above limit.")
	counts, src, n := param("counts"), param("src"), param("n")
	above := g.broadcast(Mem{Base: param("limit")})
	size, one = g.full(0x7fffffff), g.full(1)
	sums := []reg.VecVirtual{g.load(Mem{Base: counts}), g.zero()}
	Label("number")
	for i := range 4 {
		g.gtI(g.and(g.load(g.at(src, i)), size), above).count(one, sums[i%2])
	}
	ADDQ(U32(uint32(4*g.row())), src)
	SUBQ(U32(uint32(4*g.v)), n)
	JG(LabelRef("number"))
	VMOVUPS(g.addI(sums[0], sums[1]), Mem{Base: counts})
	g.end()
}

// gtI compares integers.
func (g *isa) gtI(a, b Op) mask {
	if g.wide() {
		k := K()
		VPCMPGTD(b, a, k)
		return mask{g, k}
	}
	r := YMM()
	VPCMPGTD(b, a, r)
	return mask{g, r}
}

// toF8 rounds to an 8-bit float. From the number with bits high on it is most, and no
// number is nan.
func (g *isa) toF8(name string, mantissa, bias, high, most, nan uint32) {
	g.begin(name, "dst *byte, src *float32, n int", "rounds to an 8-bit float in strips of two registers.")
	shift := uint8(23 - mantissa)
	normal := (127 + 1 - bias) << 23 // the least number that is not subnormal
	// Adding unit makes the subnormals' unit the last bit.
	unit := (127 + 1 - bias - mantissa + 23) << 23
	one, round, offset := g.full(1), g.full(1<<(shift-1)-1), g.full((127-bias)<<23)
	unitV, normalV := g.full(unit), g.full(normal-1)
	highV, mostV, nanV, inf := g.full(high-1), g.full(most), g.full(nan), g.full(0x7f800000)
	size := g.full(0x7fffffff)
	g.stream(streamUnroll, 1, 4, func(dst, src Mem) {
		x := g.load(src)
		a := g.and(x, size)
		r := g.subI(g.add(a, unitV), unitV)
		even := g.and(g.right(a, shift), one)
		wide := g.right(g.subI(g.addI(g.addI(a, round), even), offset), shift)
		g.gtI(a, normalV).put(wide, r)
		g.gtI(a, highV).put(mostV, r)
		g.gtI(a, inf).put(nanV, r)
		sign := g.left(g.right(x, 31), 7)
		g.bytesOut(g.or(r, sign), dst)
	})
}

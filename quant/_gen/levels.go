package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// extremes and what turns numbers into levels without a search.

func (g *isa) extremes() {
	g.begin("extremes", "dst, x *float32, n int", "finds the number of the strictly largest size, that size, and the least and the largest number.")
	dst, x, n := param("dst"), param("x"), param("n")
	top, amax := g.extreme(x, n)
	low, high := g.bits(0x7f7fffff), g.bits(0xff7fffff)
	g.each("range", n, 2, func(off reg.GPVirtual, k int) {
		v := g.load(g.elem(x, off, k))
		VMINPS(low, v, low)
		VMAXPS(high, v, high)
	})
	for i, r := range []reg.VecVirtual{top, amax, low, high} {
		VMOVUPS(r, g.at(dst, i))
	}
	g.end()
}

// affine: what does not fit an int32 becomes 0x80000000 in the conversion, of which
// the low byte is 0, as in C on x86.
func (g *isa) affine() {
	g.begin("affine", "x *float32, n int, levels *int32, base, inverse, offset *float32, most *int32",
		"sets n levels to the low byte of the integer part of (x−base)·inverse + offset, at most most.")
	x, n, levels := param("x"), param("n"), param("levels")
	base, inverse := g.load(Mem{Base: param("base")}), g.load(Mem{Base: param("inverse")})
	offset, most := g.broadcast(Mem{Base: param("offset")}), g.broadcast(Mem{Base: param("most")})
	low := g.full(0xff)
	g.each("level", n, 2, func(off reg.GPVirtual, k int) {
		v := g.add(g.mul(g.sub(g.load(g.elem(x, off, k)), base), inverse), offset)
		l := g.vec()
		VCVTTPS2DQ(v, l)
		VMOVUPS(g.minI(g.and(l, low), most), g.elem(levels, off, k))
	})
	g.end()

	g.begin("rounded", "x *float32, n int, levels *int32, inverse *float32",
		"sets n levels to the low byte of x·inverse rounded, halves away from zero.")
	x, n, levels = param("x"), param("n"), param("levels")
	inverse = g.load(Mem{Base: param("inverse")})
	low = g.full(0xff)
	half, one, sign := g.float(0.5), g.float(1), g.full(0x80000000)
	g.each("level", n, 2, func(off reg.GPVirtual, k int) {
		v := g.mul(g.load(g.elem(x, off, k)), inverse)
		whole := g.vec()
		if g.wide() {
			VRNDSCALEPS(U8(3), v, whole)
		} else {
			VROUNDPS(U8(3), v, whole)
		}
		away := g.cmp(ge, g.abs(g.sub(v, whole)), half)
		away.put(g.add(whole, g.or(one, g.and(v, sign))), whole)
		l := g.vec()
		VCVTTPS2DQ(whole, l)
		VMOVUPS(g.and(l, low), g.elem(levels, off, k))
	})
	g.end()
}

// count adds one to integers in the lanes of the mask.
func (m mask) count(one Op, l reg.VecVirtual) {
	if m.g.wide() {
		VPADDD(one, l, m.r, l)
	} else {
		VPSUBD(m.r, l, l)
	}
}

// fp4 counts the midpoints below |x|. A midpoint below which the next value is
// infinite, or whose scale is zero, is no number, so that nothing is above it.
func (g *isa) fp4() {
	g.begin("fp4", "x *float32, n int, levels *int32, d, mids *float32, nmids int",
		"sets n levels to the code of the 4-bit float nearest to x/d. mids are pairs of a midpoint and the\n// value above it; scratch for nmids registers follows d.")
	x, n, levels, d := param("x"), param("n"), param("levels"), param("d")
	mids, nmids := param("mids"), param("nmids")
	dv := g.load(Mem{Base: d})
	// 0·∞ where d is 0 gives NaN.
	nan := g.mul(dv, g.div(g.float(1), dv))
	VSUBPS(nan, nan, nan)
	left, at := GP64(), GP64()
	MOVQ(nmids, left)
	MOVQ(d, at)
	Label("mid")
	ADDQ(U32(uint32(g.row())), at)
	next := g.mul(g.broadcast(Mem{Base: mids, Disp: 4}), dv)
	t := g.add(g.mul(g.broadcast(Mem{Base: mids}), dv), g.sub(next, next))
	g.cmp(eq, dv, g.zero()).put(nan, t)
	VMOVUPS(t, Mem{Base: at})
	ADDQ(U32(8), mids)
	DECQ(left)
	JNZ(LabelRef("mid"))

	one, eight := g.bits(1), g.bits(8)
	size := g.full(0x7fffffff)
	g.each("level", n, 1, func(off reg.GPVirtual, k int) {
		v := g.load(g.elem(x, off, k))
		a := g.and(v, size)
		l := g.zero()
		for i := range 7 {
			g.cmp(gt, a, g.at(d, 1+i)).count(one, l)
		}
		none := g.cmpEqI(l, g.zero())
		signed := g.addI(l, eight)
		g.cmp(lt, v, g.zero()).andNot(none).put(signed, l)
		VMOVUPS(l, g.elem(levels, off, k))
	})
	g.end()
}

// nearest16 finds the nearest of iq4's sixteen values. With AVX-512, the multiple of 8
// nearest to x picks one of 32 entries: a threshold and what is below and above it.
// With AVX2 the whole part of 2·x does, as all thresholds are multiples of a half.
type nearest16 struct {
	g                   *isa
	low, high           reg.VecVirtual
	eighth, magic       reg.VecVirtual
	threshold, down, up [2]reg.VecVirtual
	table               reg.GPVirtual
	two, offset         Op
}

// newNearest16 loads tables: see iq4Tables in the kernel package.
func (g *isa) newNearest16(tables reg.GPVirtual) *nearest16 {
	t := &nearest16{g: g, low: g.float(-127), high: g.float(113), table: tables}
	if !g.wide() {
		t.two, t.offset = g.float(2), g.float(254)
		return t
	}
	t.eighth, t.magic = g.float(0.125), g.float(magic)
	for i := range 2 {
		t.threshold[i] = g.load(g.at(tables, i))
		t.down[i] = g.load(g.at(tables, 2+i))
		t.up[i] = g.load(g.at(tables, 4+i))
	}
	return t
}

// of looks up x. What is no number gets the last value.
func (t *nearest16) of(x Op) reg.VecVirtual {
	g := t.g
	v := g.max(g.min(x, t.high), t.low)
	if !g.wide() {
		i := g.mul(v, t.two)
		VROUNDPS(U8(1), i, i)
		VADDPS(t.offset, i, i)
		VCVTTPS2DQ(i, i)
		all, r := YMM(), YMM()
		VPCMPEQD(all, all, all)
		VGATHERDPS(all, Mem{Base: t.table, Index: i, Scale: 4}, r)
		return r
	}
	at := g.add(g.mul(v, t.eighth), t.magic)
	pick := func(from [2]reg.VecVirtual) reg.VecVirtual {
		r := g.copy(at)
		VPERMI2PS(from[1], from[0], r)
		return r
	}
	r := pick(t.up)
	g.cmp(lt, v, pick(t.threshold)).put(pick(t.down), r)
	return r
}

// iq4 is iq4Scale of all lanes.
func (g *isa) iq4() {
	g.begin("iq4", "x, w *float32, n int, scales, steps *float32, nsteps int, tables *float32",
		"fits a scale to n numbers; steps are the numerators to try.")
	x, w, n, scales := param("x"), param("w"), param("n"), param("scales")
	steps, nsteps, tables := param("steps"), param("nsteps"), param("tables")
	top, amax := g.extreme(x, n)
	VMOVUPS(amax, Mem{Base: scales})
	values := g.newNearest16(tables)
	sums := func(name string, id reg.VecVirtual) (qx, q2 reg.VecVirtual) {
		qx, q2 = g.zero(), g.zero()
		g.each(name, n, 2, func(off reg.GPVirtual, k int) {
			v := g.load(g.elem(x, off, k))
			q := values.of(g.mul(id, v))
			wq := g.mul(q, g.elem(w, off, k))
			add2(g.mul(wq, v), qx)
			add2(g.mul(wq, q), q2)
		})
		return qx, q2
	}
	first := g.xor(top, g.full(0x80000000))
	VDIVPS(g.float(-127), first, first)
	qx, q2 := sums("first", g.div(g.float(1), first))
	d := g.zero()
	g.cmp(gt, q2, g.zero()).put(g.div(qx, q2), d)
	best := g.mul(d, qx)
	Label("step")
	id := g.div(g.broadcast(Mem{Base: steps}), top)
	qx, q2 = sums("sums", id)
	better := g.cmp(gt, q2, g.zero()).and(g.cmp(gt, g.mul(qx, qx), g.mul(best, q2)))
	s := g.div(qx, q2)
	better.put(s, d)
	better.put(g.mul(s, qx), best)
	ADDQ(U32(4), steps)
	DECQ(nsteps)
	JNZ(LabelRef("step"))
	g.cmp(lt, g.load(Mem{Base: scales}), g.float(1e-15)).clear(d)
	VMOVUPS(d, Mem{Base: scales})
	g.end()

	g.begin("iq4Levels", "x *float32, n int, levels *int32, inverse, tables *float32", "sets n levels to the nearest of x·inverse.")
	x, n, levels := param("x"), param("n"), param("levels")
	inverse := g.load(Mem{Base: param("inverse")})
	values = g.newNearest16(param("tables"))
	g.each("level", n, 2, func(off reg.GPVirtual, k int) {
		VMOVUPS(values.of(g.mul(inverse, g.load(g.elem(x, off, k)))), g.elem(levels, off, k))
	})
	g.end()
}

// signs has a bit for each number, as in q1_0.
func (g *isa) signs() {
	g.begin("notNegative", "dst *byte, x *float32, n int", "sets a bit for each of n numbers that is not negative; n is a multiple of the lanes.")
	dst, x, n := param("dst"), param("x"), param("n")
	zero := g.zero()
	bits := GP32()
	Label("number")
	m := g.cmp(ge, g.load(Mem{Base: x}), zero)
	if g.wide() {
		KMOVW(m.r, bits)
		MOVW(bits.As16(), Mem{Base: dst})
	} else {
		VMOVMSKPS(m.r, bits)
		MOVB(bits.As8(), Mem{Base: dst})
	}
	ADDQ(U32(uint32(g.v/8)), dst)
	ADDQ(U32(uint32(g.row())), x)
	SUBQ(U32(uint32(g.v)), n)
	JG(LabelRef("number"))
	g.end()
}

package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The iq1 searches have a way to cut the sorted sub-block in each lane. They write
// the sums of all cuts; choose finds the best of them as ggml does, one after the other.

// iq1Slots is how many sums a plane has room for.
const iq1Slots = 832

func (g *isa) iq1() {
	g.begin("iq1s", "sums, x, w, values *float32",
		"sets planes of 832 sums, Σwqx with both shifts and then Σwq², for all cuts i1 ≤ i2 of 32 numbers.\n"+
			"// x and w are 33 running sums and then NaN; the last rows of cuts are filled up to whole registers.")
	sums, x, w, values := param("sums"), param("x"), param("w"), param("values")
	xEnd, wEnd := g.broadcast(Mem{Base: x, Disp: 4 * 32}), g.broadcast(Mem{Base: w, Disp: 4 * 32})
	x1, w1 := GP64(), GP64()
	i1, i2 := GP64(), GP64()
	XORQ(i1, i1)
	Label("first")
	MOVQ(i1, i2)
	LEAQ(Mem{Base: x, Index: i1, Scale: 4}, x1)
	LEAQ(Mem{Base: w, Index: i1, Scale: 4}, w1)
	xv, wv := g.broadcast(Mem{Base: x1}), g.broadcast(Mem{Base: w1})
	dx0 := g.sub(xv, g.broadcast(Mem{Base: x}))
	dw0 := g.sub(wv, g.broadcast(Mem{Base: w}))
	Label("second")
	ax, aw := g.load(Mem{Base: x1}), g.load(Mem{Base: w1})
	dx1, dx2 := g.sub(ax, xv), g.sub(xEnd, ax)
	dw1, dw2 := g.sub(aw, wv), g.sub(wEnd, aw)
	for sign := range 2 {
		qx, q2 := g.vec(), g.vec()
		for level, d := range []struct{ x, w reg.VecVirtual }{{dx0, dw0}, {dx1, dw1}, {dx2, dw2}} {
			v := g.broadcast(Mem{Base: values, Disp: 4 * (3*sign + level)})
			if level == 0 {
				VMULPS(v, d.x, qx)
				VMULPS(v, d.w, q2)
				VMULPS(v, q2, q2)
				continue
			}
			add2(g.mul(d.x, v), qx)
			add2(g.mul(g.mul(d.w, v), v), q2)
		}
		VMOVUPS(qx, Mem{Base: sums, Disp: 4 * iq1Slots * sign})
		VMOVUPS(q2, Mem{Base: sums, Disp: 4 * iq1Slots * (2 + sign)})
	}
	for _, p := range []reg.GPVirtual{sums, x1, w1} {
		ADDQ(U32(uint32(g.row())), p)
	}
	ADDQ(U32(uint32(g.v)), i2)
	CMPQ(i2, U32(33))
	JCS(LabelRef("second"))
	INCQ(i1)
	CMPQ(i1, U32(33))
	JCS(LabelRef("first"))
	g.end()

	// Tables for each sorted number: the terms of the three levels, then NaN, for
	// each of the four pairs of shifts, of both sums.
	g.begin("iq1m", "sums, x, w, values, tables *float32, groups *int64, levels *int32, vectors int",
		"sets planes of 832 sums, Σwqx with the four pairs of shifts and then Σwq², for all cuts of 16 numbers.\n"+
			"// levels says for each register of cuts which level each sorted number has; tables is scratch.")
	sums, x, w, values = param("sums"), param("x"), param("w"), param("values")
	tables, groups, levels, vectors := param("tables"), param("groups"), param("levels"), param("vectors")
	entry := 8 * g.row()
	plus, minus := g.load(Mem{Base: values}), g.load(Mem{Base: values, Disp: 64})
	at, j := GP64(), GP64()
	MOVQ(tables, at)
	XORQ(j, j)
	Label("table")
	xj, wj := g.broadcast(Mem{Base: x, Index: j, Scale: 4}), g.broadcast(Mem{Base: w, Index: j, Scale: 4})
	group, other := GP64(), GP64()
	MOVQ(Mem{Base: groups, Index: j, Scale: 8}, group)
	IMUL3Q(U32(uint32(2*g.row())), group, group)
	MOVQ(at, other)
	SUBQ(group, other)
	ADDQ(at, group)
	for sign, xq := range []reg.VecVirtual{plus, minus} {
		wq := g.mul(xq, wj)
		qx, q2 := g.mul(wq, xj), g.mul(wq, xq)
		own, shared := Mem{Base: at}, Mem{Base: group, Disp: 2 * g.row()}
		if sign == 1 {
			own, shared = Mem{Base: at, Disp: 6 * g.row()}, Mem{Base: other, Disp: 4 * g.row()}
		}
		for _, m := range []Mem{own, shared} {
			VMOVUPS(qx, m)
			m.Disp += g.row()
			VMOVUPS(q2, m)
		}
	}
	ADDQ(U32(uint32(entry)), at)
	INCQ(j)
	CMPQ(j, U32(16))
	JCS(LabelRef("table"))

	Label("vector")
	acc := make([]reg.VecVirtual, 8)
	for i := range acc {
		acc[i] = g.zero()
	}
	MOVQ(tables, at)
	left := GP64()
	MOVQ(U32(16), left)
	Label("number")
	index := g.load(Mem{Base: levels})
	for i := range acc {
		term := g.vec()
		VPERMPS(g.at(at, i), index, term)
		add2(term, acc[i])
	}
	ADDQ(U32(uint32(entry)), at)
	ADDQ(U32(uint32(g.row())), levels)
	DECQ(left)
	JNZ(LabelRef("number"))
	for i := range acc {
		VMOVUPS(acc[i], Mem{Base: sums, Disp: 4 * iq1Slots * (i%2*4 + i/2)})
	}
	ADDQ(U32(uint32(g.row())), sums)
	DECQ(vectors)
	JNZ(LabelRef("vector"))
	g.end()

	g.choose(2, 0x5555555555555555)
	g.choose(4, 0x1111111111111111)
}

// choose goes through planes of sums slot by slot.
func (g *isa) choose(planes int, deposit uint64) {
	name := fmt.Sprintf("choose%d", planes)
	TEXT(name+g.name, NOSPLIT, "func(sums *float32, slots int, weight, scale *float32) (pos int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s%s takes in order of slot·%d+plane what has Σwq² > 0 and (Σwqx)² > best·Σwq², best being the last", name, g.name, planes),
		"one's scale·Σwqx and scale its Σwqx/Σwq². It returns the last one's place and scale, or -1. weight is Σw.")
	sums, slots, scale := param("sums"), param("slots"), param("scale")
	// Only what comes within 2% of the largest (Σwqx)²/Σwq² needs to be looked at.
	// Among some thousand ratios there must be a gap of a millionth, more than the
	// comparisons round, in that range; the first ratio above it beats whatever came
	// before, whether or not that was looked at, and from there on all is the same.
	// This holds while nothing that matters is subnormal: Σwq² is at least Σw/64.
	high := g.zero()
	first := GP64()
	XORQ(first, first)
	Label("ratio")
	for i := range planes {
		qx := g.load(Mem{Base: sums, Index: first, Scale: 4, Disp: 4 * iq1Slots * i})
		inverse := g.vec()
		q2 := Mem{Base: sums, Index: first, Scale: 4, Disp: 4 * iq1Slots * (planes + i)}
		if g.wide() {
			VRCP14PS(q2, inverse)
		} else {
			VRCPPS(q2, inverse)
		}
		VMAXPS(high, g.mul(g.mul(qx, qx), inverse), high)
	}
	ADDQ(U32(uint32(g.v)), first)
	CMPQ(first, slots)
	JCS(LabelRef("ratio"))
	top, other := XMM(), XMM()
	if g.wide() {
		y := YMM()
		VEXTRACTF64X4(U8(1), high, y)
		VMAXPS(y, high.AsY(), high.AsY())
	}
	VEXTRACTF128(U8(1), high.AsY(), other)
	VMAXPS(other, high.AsX(), top)
	VPSHUFD(U8(0x4e), top, other)
	VMAXPS(other, top, top)
	VPSHUFD(U8(0xb1), top, other)
	VMAXPS(other, top, top)
	best := g.bits(0xff7fffff)
	VUCOMISS(constant(floatBits(1e30)), top)
	JCC(LabelRef("all"))
	VMULSS(constant(floatBits(0.98)), top, top)
	VMULSS(Mem{Base: param("weight")}, top, other)
	VUCOMISS(constant(floatBits(1e-28)), other)
	JCS(LabelRef("all"))
	VBROADCASTSS(top, best)
	Label("all")
	patterns := make([]reg.GPVirtual, planes)
	for i := range patterns {
		patterns[i] = GP64()
		MOVQ(U64(deposit<<i), patterns[i])
	}
	slot, keep, pos, all := GP64(), GP64(), GP64(), GP64()
	shift := map[int]uint8{2: 1, 4: 2}[planes]
	XORQ(slot, slot)
	MOVQ(I32(-1), pos)
	MOVQ(I32(-1), all)
	MOVQ(all, keep)
	last, chosen := XMM(), XMM()
	VXORPS(last, last, last)
	Label("slot")
	found := GP64()
	for i := range planes {
		qx := g.load(Mem{Base: sums, Index: slot, Scale: 4, Disp: 4 * iq1Slots * i})
		q2 := g.load(Mem{Base: sums, Index: slot, Scale: 4, Disp: 4 * iq1Slots * (planes + i)})
		hit := g.cmp(gt, g.mul(qx, qx), g.mul(best, q2)).and(g.cmp(gt, q2, g.zero()))
		bits := hit.bits().As64()
		PDEPQ(patterns[i], bits, bits)
		if i == 0 {
			MOVQ(bits, found)
		} else {
			ORQ(bits, found)
		}
	}
	ANDQ(keep, found)
	JZ(LabelRef("next"))
	// Take the first, then look at those after it in the same slots again.
	lane, plane := GP64(), GP64()
	TZCNTQ(found, pos)
	MOVQ(I32(-2), keep)
	SHLXQ(pos, keep, keep)
	MOVQ(pos, lane)
	SHRQ(U8(shift), lane)
	ADDQ(slot, lane)
	MOVQ(pos, plane)
	ANDQ(U32(uint32(planes-1)), plane)
	IMUL3Q(U32(iq1Slots), plane, plane)
	ADDQ(plane, lane)
	MOVQ(slot, plane)
	SHLQ(U8(shift), plane)
	ADDQ(plane, pos)
	VMOVSS(Mem{Base: sums, Index: lane, Scale: 4}, chosen)
	VDIVSS(Mem{Base: sums, Index: lane, Scale: 4, Disp: 4 * iq1Slots * planes}, chosen, last)
	VMULSS(last, chosen, chosen)
	VBROADCASTSS(chosen, best)
	JMP(LabelRef("slot"))
	Label("next")
	MOVQ(all, keep)
	ADDQ(U32(uint32(g.v)), slot)
	CMPQ(slot, slots)
	JCS(LabelRef("slot"))
	VMOVSS(last, Mem{Base: scale})
	VZEROUPPER()
	Store(pos, ReturnIndex(0))
	RET()
}

// iq1Decoders use registers of 8, the size of a group.
func (g *isa) iq1Decoders() {
	eight := isas[0]
	put := func(dst reg.GPVirtual, at int, index, points reg.GPVirtual, delta, dl Op) {
		v := YMM()
		VPMOVSXBD(Mem{Base: points, Index: index, Scale: 8}, v)
		VMOVUPS(eight.mul(eight.add(number(v), delta), dl), offset(dst, at))
	}
	begin := func(name string, local int) (dst, src, n, points reg.GPVirtual, m Mem) {
		g.begin(name, "dst *float32, src *byte, n int, points *int8", "decodes n blocks; points has 8 levels for each.")
		m = AllocLocal(local)
		return param("dst"), param("src"), param("n"), param("points"), m
	}
	dst, src, n, points, local := begin("decodeIQ1S", 64)
	one, seven, sign, eighth := eight.bits(1), eight.bits(7), eight.bits(0x80000000), eight.float(0.125)
	Label("block")
	d := eight.half(offset(src, 0))
	// Scales and shifts of all eight sub-blocks.
	qh := YMM()
	VPMOVZXWD(offset(src, 34), qh)
	s := eight.and(eight.right(qh, 12), seven)
	VPADDD(s, s, s)
	VMOVUPS(eight.mul(number(eight.addI(s, one)), d), local)
	local2 := local
	local2.Disp += 32
	VMOVUPS(eight.or(eight.and(eight.left(qh, 16), sign), eighth), local2)
	for ib := range 8 {
		m := local
		m.Disp += 4 * ib
		dl := eight.broadcast(m)
		m.Disp += 32
		delta := eight.broadcast(m)
		high := GP32()
		MOVWLZX(offset(src, 34+2*ib), high)
		for k := range 4 {
			index, h := GP64(), GP32()
			MOVBLZX(offset(src, 2+4*ib+k), index.As32())
			MOVL(high, h)
			if k < 3 {
				SHLL(U8(uint8(8-3*k)), h)
			} else {
				SHRL(U8(1), h)
			}
			ANDL(U32(0x700), h)
			ORL(h, index.As32())
			put(dst, 4*(32*ib+8*k), index, points, delta, dl)
		}
	}
	ADDQ(U32(1024), dst)
	ADDQ(U32(50), src)
	DECQ(n)
	JNZ(LabelRef("block"))
	g.end()

	dst, src, n, points, local = begin("decodeIQ1M", 64)
	one, seven, sign, eighth = eight.bits(1), eight.bits(7), eight.bits(0x80000000), eight.float(0.125)
	shifts := eight.lanesOf("iq1mShift"+g.name, func(i int) uint32 { return uint32(3 * (i % 4)) })
	Label("block")
	// The block's scale is in the upper four bits of the scale words.
	words, h, t := GP64(), GP64(), GP64()
	MOVQ(offset(src, 48), words)
	MOVQ(U64(0xf000f000f000f000), t)
	PEXTQ(t, words, h)
	hx, dx := XMM(), XMM()
	VMOVD(h.As32(), hx)
	VCVTPH2PS(hx, dx)
	d = YMM()
	VBROADCASTSS(dx, d)
	for half := range 2 {
		// Words 2·half and 2·half+1 have the scales of eight sub-blocks.
		two := YMM()
		x0, x1 := XMM(), XMM()
		word := func(i int, to reg.VecVirtual) {
			VPBROADCASTW(offset(src, 48+4*half+2*i), to)
		}
		word(0, x0)
		word(1, x1)
		VINSERTI128(U8(1), x1, x0.AsY(), two)
		VPSRLVD(shifts, two, two)
		s := eight.and(two, seven)
		VPADDD(s, s, s)
		m := local
		m.Disp += 32 * half
		VMOVUPS(eight.mul(number(eight.addI(s, one)), d), m)
	}
	for ib := range 16 {
		m := local
		m.Disp += 4 * ib
		dl := eight.broadcast(m)
		for k := range 2 {
			index, high := GP64(), GP32()
			MOVBLZX(offset(src, 2*ib+k), index.As32())
			MOVBLZX(offset(src, 32+ib), high)
			shifted := YMM()
			x := XMM()
			if k == 0 {
				SHLL(U8(8), high)
			} else {
				SHLL(U8(4), high)
			}
			VMOVD(high, x)
			ANDL(U32(0x700), high)
			ORL(high, index.As32())
			VPBROADCASTD(x, shifted)
			// Bit 11 is the sign of the shift.
			delta := eight.or(eight.and(eight.left(shifted, 20), sign), eighth)
			put(dst, 4*(16*ib+8*k), index, points, delta, dl)
		}
	}
	ADDQ(U32(1024), dst)
	ADDQ(U32(56), src)
	DECQ(n)
	JNZ(LabelRef("block"))
	g.end()
}

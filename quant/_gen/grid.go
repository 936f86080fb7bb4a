package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The grid searches go wide across the points near a group, not across blocks:
// a point's error is the sum of one term for each of its levels, in order, and
// the terms come from small tables in registers.

// lanesOf is a constant register.
func (g *isa) lanesOf(name string, value func(lane int) uint32) Mem {
	m := GLOBL(name+g.name, RODATA|NOPTR)
	for i := range g.v {
		DATA(4*i, U32(value(i)))
	}
	return m
}

// gridArgs are the fields of the kernel package's struct, 8 bytes each.
const (
	argX = 8 * iota
	argWaux
	argIDs
	argScales
	argTrials
	argN
	argEntries
	argNear
	argLevels
	argOn
	argScratch
)

// nearby returns in pos which point of a list has the least error: the first of
// several. values are the numbers that levels stand for; the list is in chunks of a register's lanes.
func (g *isa) nearby(name string, dim, bits int, x, waux reg.GPVirtual, values Op, list, chunks, scratch reg.GPVirtual) (pos reg.GPVirtual) {
	terms := make([]reg.VecVirtual, dim)
	for i := range terms {
		diff := g.sub(values, g.broadcast(Mem{Base: x, Disp: 4 * i}))
		terms[i] = g.mul(g.mul(diff, g.broadcast(Mem{Base: waux, Disp: 4 * i})), diff)
	}
	best, at := g.bits(0x7f7fffff), g.zero()
	now := g.load(g.lanesOf("lane"+name, func(i int) uint32 { return uint32(i) }))
	step := g.full(uint32(g.v))
	p, left := GP64(), GP64()
	MOVQ(list, p)
	MOVQ(chunks, left)
	Label(name + "_chunk")
	point := g.vec()
	VPMOVZXWD(Mem{Base: p}, point)
	d2 := g.vec()
	VPERMPS(terms[0], point, d2)
	term := g.vec()
	for i := 1; i < dim; i++ {
		VPSRLD(U8(bits), point, point)
		VPERMPS(terms[i], point, term)
		add2(term, d2)
	}
	less := g.cmp(lt, d2, best)
	less.put(d2, best)
	less.put(now, at)
	VPADDD(step, now, now)
	ADDQ(U32(uint32(2*g.v)), p)
	DECQ(left)
	JNZ(LabelRef(name + "_chunk"))

	VMOVUPS(at, Mem{Base: scratch})
	least, other := XMM(), XMM()
	if g.wide() {
		y := YMM()
		VEXTRACTF64X4(U8(1), best, y)
		VMINPS(y, best.AsY(), y)
		VEXTRACTF128(U8(1), y, other)
		VMINPS(other, y.AsX(), least)
	} else {
		VEXTRACTF128(U8(1), best, other)
		VMINPS(other, best.AsX(), least)
	}
	VPSHUFD(U8(0x4e), least, other)
	VMINPS(other, least, least)
	VPSHUFD(U8(0xb1), least, other)
	VMINPS(other, least, least)
	all := g.vec()
	VBROADCASTSS(least, all)
	mask, lane := g.cmp(eq, best, all).bits(), GP32()
	// Within one chunk lanes are in order; of more, the least position is wanted.
	pos = GP64()
	TZCNTL(mask, pos.As32())
	CMPQ(chunks, U32(1))
	JEQ(LabelRef(name + "_one"))
	MOVQ(U64(0xffffffff), pos)
	Label(name + "_tie")
	TZCNTL(mask, lane)
	candidate := GP32()
	MOVL(Mem{Base: scratch, Index: lane.As64(), Scale: 4}, candidate)
	CMPL(candidate, pos.As32())
	CMOVLCS(candidate, pos.As32())
	BLSRL(mask, mask)
	JNZ(LabelRef(name + "_tie"))
	Label(name + "_one")
	return pos
}

// trials rounds a sub-block to the grid with each of several scales.
func (g *isa) trials(bits, dim, top int) {
	name := fmt.Sprintf("grid%d", bits)
	g.begin(name, "args *uint64", "rounds a sub-block to grid points with each of the scales.")
	args := param("args")
	field := func(off int) reg.GPVirtual {
		r := GP64()
		MOVQ(Mem{Base: args, Disp: off}, r)
		return r
	}
	odd := g.lanesOf("odd"+name, func(i int) uint32 { return floatBits(float32(2*(i%(1<<bits)) + 1)) })
	trial := field(argTrials)
	ids, scales, levels, on := field(argIDs), field(argScales), field(argLevels), field(argOn)

	Label("trial")
	round := g.newRounder(g.full(bitsOf(0)), g.full(bitsOf(top)), false)
	one, half := g.float(1), g.float(0.5)
	id := g.broadcast(Mem{Base: ids})
	x, out, n := field(argX), GP64(), field(argN)
	MOVQ(levels, out)
	Label("round")
	l := round.level(g.mul(half, g.sub(g.mul(id, g.load(Mem{Base: x})), one)))
	VPSUBD(g.full(bitsOf(0)), l, l)
	if g.wide() {
		VPMOVDB(l, Mem{Base: out})
	} else {
		high := XMM()
		VEXTRACTI128(U8(1), l, high)
		VPACKUSDW(high, l.AsX(), high)
		VPACKUSWB(high, high, high)
		VMOVQ(high, Mem{Base: out})
	}
	ADDQ(U32(uint32(g.row())), x)
	ADDQ(U32(uint32(g.v)), out)
	SUBQ(U32(uint32(g.v)), n)
	JG(LabelRef("round"))

	group, onMask := GP64(), GP64()
	XORQ(group, group)
	XORQ(onMask, onMask)
	levelMask := GP64()
	if bits == 2 {
		MOVQ(U64(0x0303030303030303), levelMask)
	} else {
		MOVQ(U64(0x07070707), levelMask)
	}
	Label("group")
	u := GP64()
	if bits == 2 {
		MOVQ(Mem{Base: levels, Index: group, Scale: 8}, u)
	} else {
		MOVL(Mem{Base: levels, Index: group, Scale: 4}, u.As32())
	}
	PEXTQ(levelMask, u, u)
	entry, chunks := GP64(), GP64()
	MOVL(Mem{Base: field(argEntries), Index: u, Scale: 4}, entry.As32())
	TESTQ(entry, entry)
	JZ(LabelRef("on"))
	MOVQ(entry, chunks)
	ANDQ(U32(0xff), chunks)
	SHRQ(U8(8), entry)
	SHLQ(U8(map[int]uint8{8: 4, 16: 5}[g.v]), entry) // 2 bytes a point
	ADDQ(field(argNear), entry)
	gx, gw, at := field(argX), field(argWaux), GP64()
	MOVQ(group, at)
	SHLQ(U8(map[int]uint8{8: 5, 4: 4}[dim]), at)
	ADDQ(at, gx)
	ADDQ(at, gw)
	values := g.mul(g.broadcast(Mem{Base: scales}), odd)
	pos := g.nearby(name, dim, bits, gx, gw, values, entry, chunks, field(argScratch))
	point := GP64()
	MOVWLZX(Mem{Base: entry, Index: pos, Scale: 2}, point.As32())
	PDEPQ(levelMask, point, point)
	if bits == 2 {
		MOVQ(point, Mem{Base: levels, Index: group, Scale: 8})
	} else {
		MOVL(point.As32(), Mem{Base: levels, Index: group, Scale: 4})
	}
	JMP(LabelRef("next"))
	Label("on")
	BTSQ(group, onMask)
	Label("next")
	INCQ(group)
	groups := field(argN)
	SHRQ(U8(map[int]uint8{8: 3, 4: 2}[dim]), groups)
	CMPQ(group, groups)
	JCS(LabelRef("group"))
	MOVB(onMask.As8(), Mem{Base: on})
	INCQ(on)
	ADDQ(U32(4), ids)
	ADDQ(U32(4), scales)
	ADDQ(U32(32), levels)
	DECQ(trial)
	JNZ(LabelRef("trial"))
	g.end()
}

// gridSums has a trial in each lane.
func (g *isa) gridSums() {
	g.begin("gridSums", "dst *float32, levels *byte, x, w *float32, n int",
		"adds w·x·q, then w·q², over n numbers of each lane's trial, q = 2·level+1. Trials' levels are 32 bytes apart.")
	dst, levels, x, w, n := param("dst"), param("levels"), param("x"), param("w"), param("n")
	stride := g.load(g.lanesOf("trialStride", func(i int) uint32 { return uint32(32 * i) }))
	qx, q2 := g.zero(), g.zero()
	one, low := g.full(1), g.full(0xff)
	Label("four")
	four := g.vec()
	where := Mem{Base: levels, Index: stride, Scale: 1}
	if g.wide() {
		all := K()
		KXNORW(all, all, all)
		VPGATHERDD(where, all, four)
	} else {
		all := YMM()
		VPCMPEQD(all, all, all)
		VPGATHERDD(all, where, four)
	}
	for i := range 4 {
		q := g.and(four, low)
		VPADDD(q, q, q)
		VPADDD(one, q, q)
		VCVTDQ2PS(q, q)
		wv := g.broadcast(Mem{Base: w, Disp: 4 * i})
		wx := g.mul(wv, g.broadcast(Mem{Base: x, Disp: 4 * i}))
		add2(g.mul(wx, q), qx)
		add2(g.mul(g.mul(wv, q), q), q2)
		if i < 3 {
			VPSRLD(U8(8), four, four)
		}
	}
	ADDQ(U32(4), levels)
	ADDQ(U32(16), x)
	ADDQ(U32(16), w)
	SUBQ(U32(4), n)
	JG(LabelRef("four"))
	VMOVUPS(qx, g.at(dst, 0))
	VMOVUPS(q2, g.at(dst, 1))
	g.end()

	g.begin("roots", "dst, src *float32, n int", "takes square roots of n registers.")
	to, from, count := param("dst"), param("src"), param("n")
	g.each("root", count, 1, func(off reg.GPVirtual, k int) {
		r := g.vec()
		VSQRTPS(g.elem(from, off, k), r)
		VMOVUPS(r, g.elem(to, off, k))
	})
	g.end()

	TEXT("gridNearest"+g.name, NOSPLIT, "func(x, w, values *float32, list *uint16, chunks int, scratch *uint32) (pos int)")
	Pragma("noescape")
	Doc("gridNearest" + g.name + " returns which point of a list of 2-bit levels, in chunks of as many as there are lanes, has the least error.")
	list, chunks, scratch := param("list"), param("chunks"), param("scratch")
	x, w = param("x"), param("w")
	pos := g.nearby("one", 8, 2, x, w, g.load(Mem{Base: param("values")}), list, chunks, scratch)
	Store(pos, ReturnIndex(0))
	g.end()
}

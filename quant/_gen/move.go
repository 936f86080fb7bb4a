package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// square transposes as many registers as they have lanes.
func (g *isa) square(in []reg.VecVirtual) []reg.VecVirtual {
	pairs := make([]reg.VecVirtual, g.v)
	for i := 0; i < g.v; i += 2 {
		pairs[i], pairs[i+1] = g.vec(), g.vec()
		VUNPCKLPS(in[i+1], in[i], pairs[i])
		VUNPCKHPS(in[i+1], in[i], pairs[i+1])
	}
	quads := make([]reg.VecVirtual, g.v)
	for i := 0; i < g.v; i += 4 {
		for k := range 2 {
			a, b := g.vec(), g.vec()
			VUNPCKLPD(pairs[i+2+k], pairs[i+k], a)
			VUNPCKHPD(pairs[i+2+k], pairs[i+k], b)
			quads[i+2*k], quads[i+2*k+1] = a, b
		}
	}
	out := make([]reg.VecVirtual, g.v)
	for c := range 4 {
		if !g.wide() {
			out[c], out[4+c] = g.vec(), g.vec()
			VPERM2F128(U8(0x20), quads[4+c], quads[c], out[c])
			VPERM2F128(U8(0x31), quads[4+c], quads[c], out[4+c])
			continue
		}
		shuffle := func(imm uint8, a, b reg.VecVirtual) reg.VecVirtual {
			r := g.vec()
			VSHUFF32X4(U8(imm), b, a, r)
			return r
		}
		even0, even1 := shuffle(0x88, quads[c], quads[4+c]), shuffle(0x88, quads[8+c], quads[12+c])
		odd0, odd1 := shuffle(0xdd, quads[c], quads[4+c]), shuffle(0xdd, quads[8+c], quads[12+c])
		out[c], out[8+c] = shuffle(0x88, even0, even1), shuffle(0xdd, even0, even1)
		out[4+c], out[12+c] = shuffle(0x88, odd0, odd1), shuffle(0xdd, odd0, odd1)
	}
	return out
}

// transpose turns rows of n numbers, one for each lane, into n registers.
func (g *isa) transpose() {
	g.begin("transpose", "dst, src *float32, stride, n int", "puts a row of n numbers in each lane; stride is in bytes, n a multiple of the lanes.")
	dst, src, stride, n := param("dst"), param("src"), param("stride"), param("n")
	Label("column")
	rows := make([]reg.VecVirtual, g.v)
	at := GP64()
	MOVQ(src, at)
	for i := range rows {
		rows[i] = g.load(Mem{Base: at})
		if i < g.v-1 {
			ADDQ(stride, at)
		}
	}
	for i, r := range g.square(rows) {
		VMOVUPS(r, g.at(dst, i))
	}
	ADDQ(U32(uint32(g.row())), src)
	ADDQ(U32(uint32(g.row()*g.v)), dst)
	SUBQ(U32(uint32(g.v)), n)
	JG(LabelRef("column"))
	g.end()
}

// gather is the way back, to bytes.
func (g *isa) gather() {
	g.begin("gather", "dst *byte, levels *int32, stride, n int", "writes n levels of each lane as a row of bytes; n is a multiple of the lanes.")
	dst, levels, stride, n := param("dst"), param("levels"), param("stride"), param("n")
	Label("column")
	rows := make([]reg.VecVirtual, g.v)
	for i := range rows {
		rows[i] = g.load(g.at(levels, i))
	}
	at := GP64()
	MOVQ(dst, at)
	for i, r := range g.square(rows) {
		if g.wide() {
			VPMOVDB(r, Mem{Base: at})
		} else {
			high := XMM()
			VEXTRACTI128(U8(1), r, high)
			VPACKUSDW(high, r.AsX(), high)
			VPACKUSWB(high, high, high)
			VMOVQ(high, Mem{Base: at})
		}
		if i < g.v-1 {
			ADDQ(stride, at)
		}
	}
	ADDQ(U32(uint32(g.v)), dst)
	ADDQ(U32(uint32(g.row()*g.v)), levels)
	SUBQ(U32(uint32(g.v)), n)
	JG(LabelRef("column"))
	g.end()
}

// sumSquares adds in order, as the quantizers do.
func (g *isa) sumSquares() {
	g.begin("sumSquares", "dst, x *float32, n int", "adds the squares of n numbers of each lane to dst in order.")
	dst, x, n := param("dst"), param("x"), param("n")
	sum := g.load(Mem{Base: dst})
	g.each("sum", n, 4, func(off reg.GPVirtual, k int) {
		v := g.load(g.elem(x, off, k))
		add2(g.mul(v, v), sum)
	})
	VMOVUPS(sum, Mem{Base: dst})
	g.end()

	g.begin("sum", "dst, x *float32, n int", "adds n numbers of each lane in order.")
	dst, x, n = param("dst"), param("x"), param("n")
	sum = g.zero()
	g.each("sum", n, 4, func(off reg.GPVirtual, k int) { add2(g.elem(x, off, k), sum) })
	VMOVUPS(sum, Mem{Base: dst})
	g.end()
}

// weights are those of a search, from what each lane has in base.
func (g *isa) weights() {
	kinds := []struct {
		name, doc string
		f         func(x, w, base Op) reg.VecVirtual
	}{
		{"rootWeights", "sets w to w·sqrt(base + x²).", func(x, w, base Op) reg.VecVirtual {
			s := g.add(base, g.mul(x, x))
			VSQRTPS(s, s)
			return g.mul(s, w)
		}},
		{"squareWeights", "sets w to base + x².", func(x, _, base Op) reg.VecVirtual { return g.add(base, g.mul(x, x)) }},
		{"sizeWeights", "sets w to base + |x|.", func(x, _, base Op) reg.VecVirtual { return g.add(base, g.abs(x)) }},
	}
	for _, k := range kinds {
		g.begin(k.name, "w, x *float32, n int, base *float32", k.doc)
		w, x, n, base := param("w"), param("x"), param("n"), param("base")
		b := g.load(Mem{Base: base})
		g.each("weight", n, 4, func(off reg.GPVirtual, i int) {
			at := g.elem(w, off, i)
			VMOVUPS(k.f(g.load(g.elem(x, off, i)), at, b), at)
		})
		g.end()
	}
}

// halves converts between float32 and IEEE half precision. NaN becomes the quiet NaN
// of its sign, as in ggml; the way back keeps its payload.
func (g *isa) halves() {
	narrow := func() reg.VecVirtual {
		if g.wide() {
			return YMM()
		}
		return XMM()
	}
	g.begin("toHalf", "dst *uint16, src *float32, n int", "rounds n numbers, a multiple of the lanes, to half precision.")
	dst, src, n := param("dst"), param("src"), param("n")
	sign, nan := g.full(0x80000000), g.full(0x7fc00000)
	Label("number")
	x := g.load(Mem{Base: src})
	quiet := g.or(g.and(x, sign), nan)
	g.cmp(un, x, x).put(quiet, x)
	h := narrow()
	VCVTPS2PH(U8(0), x, h)
	VMOVUPS(h, Mem{Base: dst})
	ADDQ(U32(uint32(g.row())), src)
	ADDQ(U32(uint32(g.row()/2)), dst)
	SUBQ(U32(uint32(g.v)), n)
	JG(LabelRef("number"))
	g.end()

	g.begin("fromHalf", "dst *float32, src *uint16, n int", "widens n numbers, a multiple of the lanes.")
	dst, src, n = param("dst"), param("src"), param("n")
	Label("number")
	x = g.vec()
	VCVTPH2PS(Mem{Base: src}, x)
	VMOVUPS(x, Mem{Base: dst})
	ADDQ(U32(uint32(g.row()/2)), src)
	ADDQ(U32(uint32(g.row())), dst)
	SUBQ(U32(uint32(g.v)), n)
	JG(LabelRef("number"))
	g.end()
}

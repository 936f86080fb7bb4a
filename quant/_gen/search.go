package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The searches of quant/search.go, one block per lane. Arrays are [n] registers:
// element i of all lanes is register i.

// add2 adds b to a in place.
func add2(b Op, a reg.VecVirtual) { VADDPS(b, a, a) }

// each walks i = 0, unroll, … and hands body the offset register, scaled in bytes, and
// which of the unrolled elements it is.
func (g *isa) each(name string, n reg.GPVirtual, unroll int, body func(off reg.GPVirtual, k int)) {
	off, left := GP64(), GP64()
	XORQ(off, off)
	MOVQ(n, left)
	Label(name)
	for k := range unroll {
		body(off, k)
	}
	ADDQ(U32(uint32(unroll*g.row())), off)
	SUBQ(U32(uint32(unroll)), left)
	JG(LabelRef(name))
}

// elem is element off/row+k of an array.
func (g *isa) elem(base, off reg.GPVirtual, k int) Mem {
	return Mem{Base: base, Index: off, Scale: 1, Disp: k * g.row()}
}

// Registers of the state that qkx keeps in memory, for each problem.
const (
	qkxScale = iota
	qkxLow
	qkxSumW
	qkxSumX
	qkxHigh
	qkxBest
	qkxIscale // that the best levels come from
	qkxFrom   // low that the best levels come from
	qkxFirst  // low before any fit
	qkxTry    // iscale being tried
	qkxStart  // low when it was
	qkxD      // determinant of the fit being tried
	qkxState  // how many there are
)

// problem is one of the searches that qkx runs side by side: the sums of each
// wait for one addition after the other.
type problem struct {
	g                  *isa
	x, w               reg.GPVirtual
	number             int
	low, iscale        reg.VecVirtual
	sumL, sumL2, sumXL reg.VecVirtual
	scale, tm, err     reg.VecVirtual
	good               mask
	trial, state       reg.GPVirtual
}

func (p *problem) at(i int) Mem             { return p.g.at(p.state, p.number*qkxState+i) }
func (p *problem) put(v Op, i int)          { VMOVUPS(v, p.at(i)) }
func (p *problem) get(i int) reg.VecVirtual { return p.g.load(p.at(i)) }

// trialAt is element k of the problem's trial levels.
func (p *problem) trialAt(off reg.GPVirtual, k int) Mem { return p.g.elem(p.trial, off, 32*p.number+k) }

// qkx is qkxQuants of all lanes, for so many consecutive arrays x and w.
func (g *isa) qkx(name string, mad bool, problems int) {
	g.begin(name, "x, w *float32, n int, trial *float32, levels *int32, state, steps *float32, nsteps int",
		"fits a scale and a minimum to n numbers. state gets scale, low, Σw; steps holds nmax, the bits of its\n// rounder bound and then the numerators to try.")
	x, w, n, trial := param("x"), param("w"), param("n"), param("trial")
	state, steps, nsteps := param("state"), param("steps"), param("nsteps")
	ps := make([]*problem, problems)
	for i := range ps {
		ps[i] = &problem{g: g, x: x, w: w, number: i, trial: trial, state: state}
		if i > 0 {
			size := GP64()
			IMUL3Q(U32(uint32(g.row())), n, size)
			ps[i].x, ps[i].w = GP64(), GP64()
			LEAQ(Mem{Base: ps[i-1].x, Index: size, Scale: 1}, ps[i].x)
			LEAQ(Mem{Base: ps[i-1].w, Index: size, Scale: 1}, ps[i].w)
		}
	}
	for i, p := range ps {
		g.qkxRange(p, fmt.Sprint("range", i), n, steps)
	}
	bound := Op(g.broadcast(Mem{Base: steps, Disp: 4}))
	if !g.wide() { // registers are short
		VMOVUPS(bound, g.at(state, problems*qkxState))
		bound = g.at(state, problems*qkxState)
	}
	round := g.newRounder(g.full(bitsOf(0)), bound, false)
	errorTerm := func(p *problem, l Op, v, wv Op) {
		diff := g.sub(g.add(g.mul(p.scale, l), p.tm), v)
		if mad {
			diff = g.abs(diff)
		} else {
			diff = g.mul(diff, diff)
		}
		add2(g.mul(diff, wv), p.err)
	}
	for _, p := range ps {
		p.iscale, p.scale, p.tm, p.err = p.get(qkxIscale), p.get(qkxScale), p.get(qkxLow), g.zero()
	}
	unroll := 2
	g.each("first", n, unroll, func(off reg.GPVirtual, k int) {
		for _, p := range ps {
			v := g.load(g.elem(p.x, off, k))
			l := round.float(g.mul(p.iscale, g.sub(v, p.tm)))
			errorTerm(p, l, v, g.elem(p.w, off, k))
		}
	})
	for _, p := range ps {
		p.put(p.err, qkxBest)
	}

	Label("step")
	for _, p := range ps {
		p.low = p.get(qkxLow)
		p.iscale = g.div(g.broadcast(Mem{Base: steps, Disp: 8}), g.sub(p.get(qkxHigh), p.low))
		p.put(p.low, qkxStart)
		p.put(p.iscale, qkxTry)
		p.sumL, p.sumL2, p.sumXL = g.zero(), g.zero(), g.zero()
	}
	g.each("sums", n, unroll, func(off reg.GPVirtual, k int) {
		for _, p := range ps {
			v := g.load(g.elem(p.x, off, k))
			l := round.float(g.mul(p.iscale, g.sub(v, p.low)))
			VMOVUPS(l, p.trialAt(off, k))
			wl := g.mul(l, g.elem(p.w, off, k))
			add2(wl, p.sumL)
			add2(g.mul(wl, v), p.sumXL)
			VMULPS(wl, l, l)
			add2(l, p.sumL2)
		}
	})
	for _, p := range ps {
		sw, sx := p.get(qkxSumW), p.get(qkxSumX)
		d := g.sub(g.mul(sw, p.sumL2), g.mul(p.sumL, p.sumL))
		p.scale = g.div(g.sub(g.mul(sw, p.sumXL), g.mul(sx, p.sumL)), d)
		p.tm = g.div(g.sub(g.mul(p.sumL2, sx), g.mul(p.sumL, p.sumXL)), d)
		above := g.cmp(gt, p.tm, g.zero())
		above.clear(p.tm)
		above.put(g.div(p.sumXL, p.sumL2), p.scale)
		p.put(d, qkxD)
		p.err = g.zero()
	}
	g.each("error", n, unroll, func(off reg.GPVirtual, k int) {
		for _, p := range ps {
			errorTerm(p, g.load(p.trialAt(off, k)), g.elem(p.x, off, k), g.elem(p.w, off, k))
		}
	})
	for i, p := range ps {
		same := fmt.Sprint("same", i)
		better := g.cmp(lt, p.err, p.get(qkxBest)).and(g.cmp(gt, p.get(qkxD), g.zero()))
		better.jumpIfNone(same)
		replace := func(v Op, i int) {
			old := p.get(i)
			better.put(v, old)
			p.put(old, i)
		}
		replace(p.err, qkxBest)
		replace(p.scale, qkxScale)
		replace(p.tm, qkxLow)
		replace(p.get(qkxTry), qkxIscale)
		replace(p.get(qkxStart), qkxFrom)
		Label(same)
	}
	ADDQ(U32(4), steps)
	DECQ(nsteps)
	JNZ(LabelRef("step"))

	levels := param("levels")
	for i, p := range ps {
		first := p.get(qkxFirst)
		flat := g.cmp(eq, first, p.at(qkxHigh))
		end := p.get(qkxScale)
		flat.clear(end)
		p.put(end, qkxScale)
		end = p.get(qkxLow)
		flat.put(first, end)
		p.put(end, qkxLow)
		low, iscale := p.get(qkxFrom), p.get(qkxIscale)
		zero := g.full(bitsOf(0))
		g.each(fmt.Sprint("levels", i), n, 2, func(off reg.GPVirtual, k int) {
			l := round.level(g.mul(iscale, g.sub(g.load(g.elem(p.x, off, k)), low)))
			VPSUBD(zero, l, l)
			flat.clear(l)
			VMOVUPS(l, g.elem(levels, off, k))
		})
		if i < problems-1 {
			size := GP64()
			IMUL3Q(U32(uint32(g.row())), n, size)
			ADDQ(size, levels)
		}
	}
	g.end()
}

// qkxRange sets what qkx starts from.
func (g *isa) qkxRange(p *problem, label string, n, steps reg.GPVirtual) {
	low, high := g.load(Mem{Base: p.x}), g.load(Mem{Base: p.x})
	sumW := g.load(Mem{Base: p.w})
	sumX := g.mul(sumW, low)
	rest := GP64()
	MOVQ(n, rest)
	DECQ(rest)
	g.each(label, rest, 1, func(off reg.GPVirtual, k int) {
		v, wv := g.load(g.elem(p.x, off, 1)), g.load(g.elem(p.w, off, 1))
		VMINPS(low, v, low)
		VMAXPS(high, v, high)
		add2(wv, sumW)
		add2(g.mul(wv, v), sumX)
	})
	VMINPS(low, g.zero(), low)
	for _, i := range []int{qkxLow, qkxFirst, qkxFrom} {
		p.put(low, i)
	}
	p.put(high, qkxHigh)
	p.put(sumW, qkxSumW)
	p.put(sumX, qkxSumX)
	iscale := g.div(g.broadcast(Mem{Base: steps}), g.sub(high, low))
	p.put(iscale, qkxIscale)
	p.put(g.div(g.float(1), iscale), qkxScale)
}

// extreme finds the number with the strictly largest size in each lane.
func (g *isa) extreme(x, n reg.GPVirtual) (top, amax reg.VecVirtual) {
	top, amax = g.zero(), g.zero()
	size := g.full(0x7fffffff)
	g.each("extreme", n, 1, func(off reg.GPVirtual, k int) {
		v := g.load(g.elem(x, off, k))
		a := g.and(v, size)
		g.cmp(gt, a, amax).put(v, top)
		VMAXPS(amax, a, amax)
	})
	return top, amax
}

// qx is qxQuants of all lanes. finite says that all numbers are, so that levels need
// no care beyond their bounds.
func (g *isa) qx(name string, finite bool) {
	g.begin(name, "x, w *float32, n int, levels *int32, scales, steps *float32, nsteps int",
		"fits a scale to n numbers. steps holds the bits of the rounder's bounds, then −nmax and the\n// numerators to try.")
	x, w, n, levels := param("x"), param("w"), param("n"), param("levels")
	scales, steps, nsteps := param("scales"), param("steps"), param("nsteps")
	group := 1 // trials side by side, as registers allow
	if g.wide() {
		group = 3
	}
	top, amax := g.extreme(x, n)
	tiny := g.cmp(lt, amax, g.float(1e-15))
	round := g.newRounder(g.broadcast(Mem{Base: steps}), g.broadcast(Mem{Base: steps, Disp: 4}), finite)

	iscale := g.div(g.broadcast(Mem{Base: steps, Disp: 8}), top)
	sumlx, suml2 := g.zero(), g.zero()
	g.each("first", n, 4, func(off reg.GPVirtual, k int) {
		v, wv := g.load(g.elem(x, off, k)), g.load(g.elem(w, off, k))
		l := round.float(g.mul(iscale, v))
		add2(g.mul(g.mul(wv, v), l), sumlx)
		add2(g.mul(g.mul(wv, l), l), suml2)
	})
	scale := g.div(sumlx, suml2)
	g.cmp(eq, suml2, g.zero()).clear(scale)
	best := g.mul(scale, sumlx)

	Label("steps")
	tries := make([]struct{ iscale, lx, l2 reg.VecVirtual }, group)
	for i := range tries {
		t := &tries[i]
		t.iscale = g.div(g.broadcast(Mem{Base: steps, Disp: 12 + 4*i}), top)
		t.lx, t.l2 = g.zero(), g.zero()
	}
	g.each("sums", n, 2, func(off reg.GPVirtual, k int) {
		v, wv := g.load(g.elem(x, off, k)), g.load(g.elem(w, off, k))
		wx := g.mul(wv, v)
		for i := range tries {
			t := &tries[i]
			l := round.float(g.mul(t.iscale, v))
			add2(g.mul(wx, l), t.lx)
			add2(g.mul(g.mul(wv, l), l), t.l2)
		}
	})
	for i := range tries {
		t := &tries[i]
		better := g.cmp(gt, t.l2, g.zero()).and(g.cmp(gt, g.mul(t.lx, t.lx), g.mul(best, t.l2)))
		s := g.div(t.lx, t.l2)
		better.put(s, scale)
		better.put(g.mul(s, t.lx), best)
		better.put(t.iscale, iscale)
	}
	ADDQ(U32(uint32(4*group)), steps)
	SUBQ(U32(uint32(group)), nsteps)
	JG(LabelRef("steps"))

	tiny.clear(scale)
	VMOVUPS(scale, Mem{Base: scales})
	g.each("levels", n, 2, func(off reg.GPVirtual, k int) {
		l := round.level(g.mul(iscale, g.load(g.elem(x, off, k))))
		VPSUBD(round.low, l, l)
		tiny.clear(l)
		VMOVUPS(l, g.elem(levels, off, k))
	})
	g.end()
}

// q3 is q3Quants of all lanes.
func (g *isa) q3() {
	g.begin("q3", "x *float32, n int, trial *float32, levels *int32, scales *float32",
		"fits a scale to n numbers with levels 0..7. trial is scratch.")
	x, n, trial, levels, scales := param("x"), param("n"), param("trial"), param("levels"), param("scales")
	top, amax := g.extreme(x, n)
	tiny := g.cmp(lt, amax, g.float(1e-15))
	round := g.newRounder(g.full(bitsOf(-4)), g.full(bitsOf(3)), false)
	iscale := g.div(g.float(-4), top)
	sumlx, suml2 := g.zero(), g.zero()
	g.each("first", n, 2, func(off reg.GPVirtual, k int) {
		v := g.load(g.elem(x, off, k))
		l := round.float(g.mul(iscale, v))
		VMOVUPS(l, g.elem(trial, off, k))
		w := g.mul(v, v)
		add2(g.mul(g.mul(w, v), l), sumlx)
		add2(g.mul(g.mul(w, l), l), suml2)
	})
	sweeps, changed := GP64(), GP64()
	MOVQ(U32(5), sweeps)
	Label("sweep")
	XORQ(changed, changed)
	g.each("move", n, 1, func(off reg.GPVirtual, k int) {
		v, old := g.load(g.elem(x, off, k)), g.load(g.elem(trial, off, k))
		w := g.mul(v, v)
		wx := g.mul(w, v)
		slx := g.sub(sumlx, g.mul(wx, old))
		can := g.cmp(gt, slx, g.zero())
		sl2 := g.sub(suml2, g.mul(g.mul(w, old), old))
		l := round.float(g.div(g.mul(v, sl2), slx))
		can = can.and(g.cmp(ne, l, old))
		// Late sweeps move few levels: past here nothing waits for the sums then.
		can.jumpIfNone("same")
		add2(g.mul(wx, l), slx)
		add2(g.mul(g.mul(w, l), l), sl2)
		can = can.and(g.cmp(gt, sl2, g.zero()))
		can = can.and(g.cmp(gt, g.mul(g.mul(slx, slx), suml2), g.mul(g.mul(sumlx, sumlx), sl2)))
		can.jumpIfNone("same")
		INCQ(changed)
		can.put(l, old)
		VMOVUPS(old, g.elem(trial, off, k))
		can.put(slx, sumlx)
		can.put(sl2, suml2)
		Label("same")
	})
	TESTQ(changed, changed)
	JZ(LabelRef("done"))
	DECQ(sweeps)
	JNZ(LabelRef("sweep"))
	Label("done")
	scale := g.div(sumlx, suml2)
	some := g.cmp(gt, suml2, g.zero())
	end := g.zero()
	some.put(scale, end)
	tiny.clear(end)
	VMOVUPS(end, Mem{Base: scales})
	four := g.float(4)
	g.each("levels", n, 1, func(off reg.GPVirtual, k int) {
		l := g.add(four, g.elem(trial, off, k))
		VCVTTPS2DQ(l, l)
		tiny.clear(l)
		VMOVUPS(l, g.elem(levels, off, k))
	})
	g.end()
}

// qp is qpQuants of all lanes.
func (g *isa) qp() {
	g.begin("qp", "x, w *float32, n int, levels *int32, scales, steps *float32, nsteps int",
		"fits a scale to n numbers with byte levels. steps holds nmax, the bits of its rounder bound and\n// the numerators to try.")
	x, w, n, levels := param("x"), param("w"), param("n"), param("levels")
	scales, steps, nsteps := param("scales"), param("steps"), param("nsteps")
	high := g.zero()
	g.each("extreme", n, 1, func(off reg.GPVirtual, k int) {
		VMAXPS(high, g.load(g.elem(x, off, k)), high)
	})
	tiny := g.cmp(lt, high, g.float(1e-15))
	round := g.newRounder(nil, nil, false)
	zero, byteMask := g.full(bitsOf(0)), g.full(0xff)
	bytes := func(bits reg.VecVirtual) { // magic + level to uint8(level), in place
		VPSUBD(zero, bits, bits)
		if g.wide() {
			VPANDD(byteMask, bits, bits)
		} else {
			VPAND(byteMask, bits, bits)
		}
	}
	iscale := g.div(g.broadcast(Mem{Base: steps}), high)
	scale := g.div(g.float(1), iscale)
	best := g.zero()
	g.each("first", n, 1, func(off reg.GPVirtual, k int) {
		v := g.load(g.elem(x, off, k))
		l := round.level(g.mul(iscale, v))
		bytes(l)
		VCVTDQ2PS(l, l)
		diff := g.sub(v, g.mul(scale, l))
		add2(g.mul(g.mul(diff, g.elem(w, off, k)), diff), best)
	})
	round.high = g.broadcast(Mem{Base: steps, Disp: 4})
	Label("step")
	tryIscale := g.div(g.broadcast(Mem{Base: steps, Disp: 8}), high)
	tryScale := g.div(g.float(1), tryIscale)
	mse := g.zero()
	g.each("mse", n, 2, func(off reg.GPVirtual, k int) {
		v := g.load(g.elem(x, off, k))
		l := round.float(g.mul(tryIscale, v))
		diff := g.sub(v, g.mul(tryScale, l))
		add2(g.mul(g.mul(diff, g.elem(w, off, k)), diff), mse)
	})
	better := g.cmp(lt, mse, best)
	better.put(mse, best)
	better.put(tryIscale, iscale)
	ADDQ(U32(4), steps)
	DECQ(nsteps)
	JNZ(LabelRef("step"))

	sumlx, suml2 := g.zero(), g.zero()
	g.each("sums", n, 1, func(off reg.GPVirtual, k int) {
		v, wv := g.load(g.elem(x, off, k)), g.load(g.elem(w, off, k))
		l := round.level(g.mul(iscale, v))
		f := g.sub(l, round.magic)
		bytes(l)
		VMOVUPS(l, g.elem(levels, off, k))
		add2(g.mul(g.mul(wv, v), f), sumlx)
		add2(g.mul(g.mul(wv, f), f), suml2)
	})
	sweeps, changed := GP64(), GP64()
	MOVQ(U32(5), sweeps)
	Label("sweep")
	XORQ(changed, changed)
	g.each("move", n, 1, func(off reg.GPVirtual, k int) {
		v, w, old := g.load(g.elem(x, off, k)), g.load(g.elem(w, off, k)), g.load(g.elem(levels, off, k))
		VCVTDQ2PS(old, old)
		wx := g.mul(w, v)
		slx := g.sub(sumlx, g.mul(wx, old))
		sl2 := g.sub(suml2, g.mul(g.mul(w, old), old))
		can := g.cmp(gt, slx, g.zero()).and(g.cmp(gt, sl2, g.zero()))
		l := round.float(g.div(g.mul(v, sl2), slx))
		can = can.and(g.cmp(ne, l, old))
		add2(g.mul(wx, l), slx)
		add2(g.mul(g.mul(w, l), l), sl2)
		can = can.and(g.cmp(gt, g.mul(g.mul(slx, slx), suml2), g.mul(g.mul(sumlx, sumlx), sl2)))
		can.jumpIfNone("same")
		INCQ(changed)
		add2(round.magic, l)
		bytes(l)
		new := g.load(g.elem(levels, off, k))
		can.put(l, new)
		VMOVUPS(new, g.elem(levels, off, k))
		can.put(slx, sumlx)
		can.put(sl2, suml2)
		Label("same")
	})
	TESTQ(changed, changed)
	JZ(LabelRef("done"))
	DECQ(sweeps)
	JNZ(LabelRef("sweep"))
	Label("done")
	end := g.zero()
	g.cmp(gt, suml2, g.zero()).put(g.div(sumlx, suml2), end)
	tiny.clear(end)
	VMOVUPS(end, Mem{Base: scales})
	g.each("levels", n, 1, func(off reg.GPVirtual, k int) {
		l := g.load(g.elem(levels, off, k))
		tiny.clear(l)
		VMOVUPS(l, g.elem(levels, off, k))
	})
	g.end()
}

// requantize sets levels anew where d is not zero.
func (g *isa) requantize() {
	g.begin("requantize", "x *float32, n int, levels *int32, d, m *float32, bounds *uint32",
		"sets n levels to the nearest of (x+m)/d within bounds, from the low one, where d is not 0.")
	x, n, levels := param("x"), param("n"), param("levels")
	d, m, bounds := param("d"), param("m"), param("bounds")
	low := g.broadcast(Mem{Base: bounds})
	round := g.newRounder(low, g.broadcast(Mem{Base: bounds, Disp: 4}), false)
	dv, mv := g.load(Mem{Base: d}), g.load(Mem{Base: m})
	some := g.cmp(ne, dv, g.zero())
	g.each("levels", n, 2, func(off reg.GPVirtual, k int) {
		l := round.level(g.div(g.add(g.load(g.elem(x, off, k)), mv), dv))
		VPSUBD(low, l, l)
		old := g.load(g.elem(levels, off, k))
		some.put(l, old)
		VMOVUPS(old, g.elem(levels, off, k))
	})
	g.end()
}

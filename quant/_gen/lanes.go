package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa emits code for one vector width. Each kernel is written once against it.
type isa struct {
	name string // suffix of the kernels' names
	v    int    // float32 lanes of a register
}

var isas = []*isa{{"AVX2", 8}, {"AVX512", 16}}

func (g *isa) wide() bool { return g.v == 16 }

// row is the size of one register in bytes.
func (g *isa) row() int { return 4 * g.v }

// begin starts kernel name+suffix with the given parameters and result.
func (g *isa) begin(name, params, doc string) {
	TEXT(name+g.name, NOSPLIT, "func("+params+")")
	Pragma("noescape")
	Doc(name + g.name + " " + doc)
}

func (g *isa) end() {
	VZEROUPPER()
	RET()
}

func param(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name), r)
	return r
}

func (g *isa) vec() reg.VecVirtual {
	if g.wide() {
		return ZMM()
	}
	return YMM()
}

// at is register i of an array of registers.
func (g *isa) at(base reg.Register, i int) Mem { return Mem{Base: base, Disp: i * g.row()} }

func (g *isa) load(m Mem) reg.VecVirtual {
	r := g.vec()
	VMOVUPS(m, r)
	return r
}

func (g *isa) copy(a Op) reg.VecVirtual {
	r := g.vec()
	VMOVAPS(a, r)
	return r
}

func (g *isa) zero() reg.VecVirtual {
	r := g.vec()
	g.clear(r)
	return r
}

func (g *isa) clear(r reg.VecVirtual) {
	if g.wide() {
		// avo takes VPXORD r, r, r for a use of r, which would keep it from the
		// function's start on.
		VBROADCASTSS(constant(0), r)
	} else {
		VPXOR(r, r, r)
	}
}

var constants = map[uint32]Mem{}

// constant is a 4-byte constant in memory.
func constant(bits uint32) Mem {
	if m, ok := constants[bits]; ok {
		return m
	}
	m := GLOBL(fmt.Sprintf("c%08x", bits), RODATA|NOPTR)
	DATA(0, U32(bits))
	constants[bits] = m
	return m
}

// bits broadcasts a constant to a new register.
func (g *isa) bits(b uint32) reg.VecVirtual {
	r := g.vec()
	VBROADCASTSS(constant(b), r)
	return r
}

func (g *isa) float(f float32) reg.VecVirtual { return g.bits(math.Float32bits(f)) }

func (g *isa) broadcast(m Mem) reg.VecVirtual {
	r := g.vec()
	VBROADCASTSS(m, r)
	return r
}

// The arithmetic below returns its result in a new register; b may be memory.

func (g *isa) add(a, b Op) reg.VecVirtual  { r := g.vec(); VADDPS(b, a, r); return r }
func (g *isa) sub(a, b Op) reg.VecVirtual  { r := g.vec(); VSUBPS(b, a, r); return r }
func (g *isa) mul(a, b Op) reg.VecVirtual  { r := g.vec(); VMULPS(b, a, r); return r }
func (g *isa) div(a, b Op) reg.VecVirtual  { r := g.vec(); VDIVPS(b, a, r); return r }
func (g *isa) maxI(a, b Op) reg.VecVirtual { r := g.vec(); VPMAXSD(b, a, r); return r }
func (g *isa) minI(a, b Op) reg.VecVirtual { r := g.vec(); VPMINSD(b, a, r); return r }
func (g *isa) subI(a, b Op) reg.VecVirtual { r := g.vec(); VPSUBD(b, a, r); return r }
func (g *isa) addI(a, b Op) reg.VecVirtual { r := g.vec(); VPADDD(b, a, r); return r }

// max is a > b ? a : b, min is a < b ? a : b: b wins ties and when either is no number.
func (g *isa) max(a, b Op) reg.VecVirtual { r := g.vec(); VMAXPS(b, a, r); return r }
func (g *isa) min(a, b Op) reg.VecVirtual { r := g.vec(); VMINPS(b, a, r); return r }

func (g *isa) and(a, b Op) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		VPANDD(b, a, r)
	} else {
		VPAND(b, a, r)
	}
	return r
}

func (g *isa) or(a, b Op) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		VPORD(b, a, r)
	} else {
		VPOR(b, a, r)
	}
	return r
}

func (g *isa) xor(a, b Op) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		VPXORD(b, a, r)
	} else {
		VPXOR(b, a, r)
	}
	return r
}

// andNot is b without the bits of a.
func (g *isa) andNot(a, b Op) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		VPANDND(b, a, r)
	} else {
		VPANDN(b, a, r)
	}
	return r
}

func (g *isa) abs(a Op) reg.VecVirtual { return g.and(a, g.full(0x7fffffff)) }

// Comparison predicates, all quiet.
const (
	eq  = 0x00
	ne  = 0x04 // or unordered
	lt  = 0x11
	le  = 0x12
	un  = 0x03 // one is no number
	nlt = 0x15
	ge  = 0x1d
	gt  = 0x1e
)

// mask is a lane mask: a K register or a vector of ones and zeros.
type mask struct {
	g *isa
	r reg.Register
}

func (g *isa) cmp(predicate int, a, b Op) mask {
	if g.wide() {
		k := K()
		VCMPPS(U8(predicate), b, a, k)
		return mask{g, k}
	}
	r := YMM()
	VCMPPS(U8(predicate), b, a, r)
	return mask{g, r}
}

// cmpEqI compares integers.
func (g *isa) cmpEqI(a, b Op) mask {
	if g.wide() {
		k := K()
		VPCMPEQD(b, a, k)
		return mask{g, k}
	}
	r := YMM()
	VPCMPEQD(b, a, r)
	return mask{g, r}
}

func (m mask) and(o mask) mask {
	if m.g.wide() {
		k := K()
		KANDW(m.r, o.r, k)
		return mask{m.g, k}
	}
	return mask{m.g, m.g.and(m.r, o.r)}
}

func (m mask) or(o mask) mask {
	if m.g.wide() {
		k := K()
		KORW(m.r, o.r, k)
		return mask{m.g, k}
	}
	return mask{m.g, m.g.or(m.r, o.r)}
}

// andNot is m and not o.
func (m mask) andNot(o mask) mask {
	if m.g.wide() {
		k := K()
		KANDNW(m.r, o.r, k)
		return mask{m.g, k}
	}
	return mask{m.g, m.g.andNot(o.r, m.r)}
}

// bits returns a bit for each lane.
func (m mask) bits() reg.GPVirtual {
	bits := GP32()
	if m.g.wide() {
		KMOVW(m.r, bits)
	} else {
		VMOVMSKPS(m.r, bits)
	}
	return bits
}

// jumpIfNone goes to label when no lane is set.
func (m mask) jumpIfNone(label string) {
	if m.g.wide() {
		KORTESTW(m.r, m.r)
	} else {
		bits := m.bits()
		TESTL(bits, bits)
	}
	JZ(LabelRef(label))
}

// put sets dst to a in the lanes of the mask.
func (m mask) put(a Op, dst reg.VecVirtual) {
	if m.g.wide() {
		VMOVAPS(a, m.r, dst)
	} else {
		VBLENDVPS(m.r, a, dst, dst)
	}
}

// clear sets dst to zero in the lanes of the mask.
func (m mask) clear(dst reg.VecVirtual) { m.put(m.g.zero(), dst) }

// loop counts a GP register down by step to 0 or below; body runs at least once.
func loop(name string, count reg.GPVirtual, step int, body func()) {
	Label(name)
	body()
	SUBQ(U32(uint32(step)), count)
	JG(LabelRef(name))
}

// The nearest integer by ggml's trick: see quant.nearest. magic is 1.5·2^23.
const magic = 12582912

// rounder turns floats to levels: nearest integers within bounds.
type rounder struct {
	g          *isa
	magic      Op
	keep, base Op // rebuild the exponent; nil where no input is beyond ±2^22
	low, high  Op // the bits of magic + bound; nil: none
}

// newRounder bounds levels to low..high, vectors of the bits of magic+bound. trusted
// says that no input is beyond ±2^22.
func (g *isa) newRounder(low, high Op, trusted bool) *rounder {
	r := &rounder{g: g, low: low, high: high, magic: g.full(floatBits(magic))}
	if !trusted {
		r.keep, r.base = g.full(0x007fffff), g.full(0x4b000000)
	}
	return r
}

// full is a constant in all lanes: a register where there are many, else memory.
func (g *isa) full(bits uint32) Op {
	if g.wide() {
		return g.bits(bits)
	}
	if m, ok := fullConstants[bits]; ok {
		return m
	}
	m := GLOBL(fmt.Sprintf("v%08x", bits), RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(bits))
	}
	fullConstants[bits] = m
	return m
}

var fullConstants = map[uint32]Mem{}

// level returns the level as magic + level: a float, and as bits an integer that
// orders alike.
func (r *rounder) level(x Op) reg.VecVirtual {
	g := r.g
	t := g.add(x, r.magic)
	switch {
	case r.keep == nil:
	case g.wide(): // (t AND keep) OR base
		VPTERNLOGD(U8(0xea), r.base, r.keep, t)
	default:
		VPAND(r.keep, t, t)
		VPOR(r.base, t, t)
	}
	if r.low != nil {
		VPMAXSD(r.low, t, t)
	}
	if r.high != nil {
		VPMINSD(r.high, t, t)
	}
	return t
}

// float returns the level as a float.
func (r *rounder) float(x Op) reg.VecVirtual {
	t := r.level(x)
	VSUBPS(r.magic, t, t)
	return t
}

// bitsOf is magic + bound as bits.
func bitsOf(bound int) uint32 { return math.Float32bits(magic + float32(bound)) }

func floatBits(f float32) uint32 { return math.Float32bits(f) }

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Decoders work through the numbers of one block after the other.

// decoder emits one: body gets where the block's numbers go and where its bytes are.
func (g *isa) decoder(name string, numbers, bytes, locals int, prepare func(), body func(dst, src reg.GPVirtual, local Mem)) {
	g.begin(name, "dst *float32, src *byte, n int", "decodes n blocks.")
	var local Mem
	if locals > 0 {
		local = AllocLocal(locals)
	}
	dst, src, n := param("dst"), param("src"), param("n")
	if prepare != nil {
		prepare()
	}
	Label("block")
	body(dst, src, local)
	ADDQ(U32(uint32(4*numbers)), dst)
	ADDQ(U32(uint32(bytes)), src)
	DECQ(n)
	JNZ(LabelRef("block"))
	g.end()
}

// half broadcasts a half precision number.
func (g *isa) half(m Mem) reg.VecVirtual {
	r := g.vec()
	if g.wide() {
		h := YMM()
		VPBROADCASTW(m, h)
		VCVTPH2PS(h, r)
	} else {
		h := XMM()
		VPBROADCASTW(m, h)
		VCVTPH2PS(h, r)
	}
	return r
}

// unsigned and signed widen as many bytes as there are lanes.
func (g *isa) unsigned(m Mem) reg.VecVirtual { r := g.vec(); VPMOVZXBD(m, r); return r }
func (g *isa) signed(m Mem) reg.VecVirtual   { r := g.vec(); VPMOVSXBD(m, r); return r }

// number makes floats of integers, in place.
func number(r reg.VecVirtual) reg.VecVirtual { VCVTDQ2PS(r, r); return r }

func offset(base reg.Register, at int) Mem { return Mem{Base: base, Disp: at} }

// lanesFrom is a constant register of first, first+1, … times step.
func (g *isa) lanesFrom(name string, first, step int) Mem {
	return g.lanesOf(name, func(i int) uint32 { return uint32(first + step*i) })
}

func (g *isa) decoders() {
	g.decoder("q80", 32, 34, 0, nil, func(dst, src reg.GPVirtual, _ Mem) {
		d := g.half(offset(src, 0))
		for e := 0; e < 32; e += g.v {
			VMOVUPS(g.mul(number(g.signed(offset(src, 2+e))), d), offset(dst, 4*e))
		}
	})
	g.nibbleDecoders()
	g.superDecoders()
	g.smallDecoders()
}

// nibbleDecoders are q4_0, q4_1, q5_0 and q5_1.
func (g *isa) nibbleDecoders() {
	type kind struct {
		name      string
		bytes, qs int // of a block; where its nibbles begin
		minimum   bool
		fifth     int // where the fifth bits are
		centre    uint32
	}
	for _, k := range []kind{{"q40", 18, 2, false, 0, 8}, {"q41", 20, 4, true, 0, 0}, {"q50", 22, 6, false, 2, 16}, {"q51", 24, 8, true, 4, 0}} {
		var low, centre, sixteen Op
		shifts := make([]Op, 32/g.v)
		g.decoder(k.name, 32, k.bytes, 0, func() {
			low = g.bits(15)
			if k.centre != 0 {
				centre = g.bits(k.centre)
			}
			if k.fifth != 0 {
				sixteen = g.bits(16)
				for i := range shifts {
					// Moves bit e to bit 31.
					shifts[i] = g.load(g.lanesOf(k.name+"shift"+string(rune('a'+i)), func(l int) uint32 { return uint32(31 - i*g.v - l) }))
				}
			}
		}, func(dst, src reg.GPVirtual, _ Mem) {
			d := g.half(offset(src, 0))
			var m, high reg.VecVirtual
			if k.minimum {
				m = g.half(offset(src, 2))
			}
			if k.fifth != 0 {
				high = g.vec()
				VPBROADCASTD(offset(src, k.fifth), high)
			}
			put := func(q reg.VecVirtual, e int) {
				if k.fifth != 0 {
					bit := g.vec()
					VPSLLVD(shifts[e/g.v], high, bit)
					VPSRLD(U8(27), bit, bit)
					q = g.or(q, g.and(bit, sixteen))
				}
				if centre != nil {
					q = g.subI(q, centre)
				}
				y := g.mul(number(q), d)
				if k.minimum {
					y = g.add(y, m)
				}
				VMOVUPS(y, offset(dst, 4*e))
			}
			for e := 0; e < 16; e += g.v {
				q := g.unsigned(offset(src, k.qs+e))
				put(g.and(q, low), e)
				put(g.right(q, 4), e+16)
			}
		})
	}
}

// perSub stores the products of d and 8 or 16 scales, and broadcasts one.
func (g *isa) perSub(scales func(e int) reg.VecVirtual, n int, d Op, to Mem) {
	for e := 0; e < n; e += g.v {
		r := g.mul(scales(e), d)
		m := to
		m.Disp += 4 * e
		VMOVUPS(r, m)
	}
}

func (g *isa) sub1(local Mem, at, j int) reg.VecVirtual {
	m := local
	m.Disp += at + 4*j
	return g.broadcast(m)
}

func (g *isa) superDecoders() {
	var low2, low4, low6, c4, c32 Op
	g.decoder("q2K", 256, 84, 128, func() { low2, low4 = g.bits(3), g.bits(15) }, func(dst, src reg.GPVirtual, local Mem) {
		d, dmin := g.half(offset(src, 80)), g.half(offset(src, 82))
		g.perSub(func(e int) reg.VecVirtual { return number(g.and(g.unsigned(offset(src, e)), low4)) }, 16, d, local)
		mins := local
		mins.Disp += 64
		g.perSub(func(e int) reg.VecVirtual { return number(g.right(g.unsigned(offset(src, e)), 4)) }, 16, dmin, mins)
		for j := range 16 {
			dl, ml := g.sub1(local, 0, j), g.sub1(local, 64, j)
			for e := 0; e < 16; e += g.v {
				q := g.unsigned(offset(src, 16+j/8*32+j%2*16+e))
				if shift := uint8(j % 8 / 2 * 2); shift > 0 {
					q = g.right(q, shift)
				}
				VMOVUPS(g.sub(g.mul(number(g.and(q, low2)), dl), ml), offset(dst, 4*(16*j+e)))
			}
		}
	})

	g.decoder("q3K", 256, 110, 80, func() { low2, c4, c32 = g.bits(3), g.bits(4), g.bits(32) }, func(dst, src reg.GPVirtual, local Mem) {
		d := g.half(offset(src, 108))
		// Sixteen six-bit scales from twelve bytes, four at a time.
		for i := range 4 {
			a, h := GP32(), GP32()
			MOVL(offset(src, 96+i%2*4), a)
			if i >= 2 {
				SHRL(U8(4), a)
			}
			ANDL(U32(0x0f0f0f0f), a)
			MOVL(offset(src, 104), h)
			if i > 0 {
				SHRL(U8(uint8(2*i)), h)
			}
			ANDL(U32(0x03030303), h)
			SHLL(U8(4), h)
			ORL(h, a)
			m := local
			m.Disp += 64 + 4*i
			MOVL(a, m)
		}
		g.perSub(func(e int) reg.VecVirtual {
			m := local
			m.Disp += 64 + e
			return number(g.subI(g.unsigned(m), c32))
		}, 16, d, local)
		for j := range 16 {
			dl := g.sub1(local, 0, j)
			for e := 0; e < 16; e += g.v {
				q := g.unsigned(offset(src, 32+j/8*32+j%2*16+e))
				if shift := uint8(j % 8 / 2 * 2); shift > 0 {
					q = g.right(q, shift)
				}
				h := g.unsigned(offset(src, j%2*16+e))
				switch bit := j / 2; {
				case bit < 2:
					h = g.left(h, uint8(2-bit))
				case bit > 2:
					h = g.right(h, uint8(bit-2))
				}
				v := g.subI(g.or(g.and(q, low2), g.and(h, c4)), c4)
				VMOVUPS(g.mul(number(v), dl), offset(dst, 4*(16*j+e)))
			}
		}
	})

	for _, five := range []bool{false, true} {
		name, bytes, qs := "q4K", 144, 16
		if five {
			name, bytes, qs = "q5K", 176, 48
		}
		var c16 Op
		g.decoder(name, 256, bytes, 96, func() { low4, c16 = g.bits(15), g.bits(16) }, func(dst, src reg.GPVirtual, local Mem) {
			d, dmin := g.half(offset(src, 0)), g.half(offset(src, 2))
			at := func(disp int) Mem { m := local; m.Disp += disp; return m }
			s0, s1, s2 := GP32(), GP32(), GP32()
			MOVL(offset(src, 4), s0)
			MOVL(offset(src, 8), s1)
			MOVL(offset(src, 12), s2)
			// The upper four: nibbles of the last word, upper bits from the others.
			for i, top := range []reg.GPVirtual{s0, s1} {
				n, h := GP32(), GP32()
				MOVL(s2, n)
				if i > 0 {
					SHRL(U8(4), n)
				}
				ANDL(U32(0x0f0f0f0f), n)
				MOVL(top, h)
				SHRL(U8(2), h)
				ANDL(U32(0x30303030), h)
				ORL(h, n)
				MOVL(n, at(64+8*i+4))
				ANDL(U32(0x3f3f3f3f), top)
				MOVL(top, at(64+8*i))
			}
			if g.wide() { // scales in lanes 0 to 7, mins in the others
				all := number(g.unsigned(at(64)))
				both, y := ZMM(), YMM()
				VEXTRACTF64X4(U8(0), dmin, y)
				VINSERTF64X4(U8(1), y, d, both)
				VMOVUPS(g.mul(all, both), at(0))
			} else {
				VMOVUPS(g.mul(number(g.unsigned(at(64))), d), at(0))
				VMOVUPS(g.mul(number(g.unsigned(at(72))), dmin), at(32))
			}
			for j := range 8 {
				dl, ml := g.sub1(local, 0, j), g.sub1(local, 32, j)
				for e := 0; e < 32; e += g.v {
					q := g.unsigned(offset(src, qs+j/2*32+e))
					if j%2 == 0 {
						q = g.and(q, low4)
					} else {
						q = g.right(q, 4)
					}
					if five {
						h := g.unsigned(offset(src, 16+e))
						switch {
						case j < 4:
							h = g.left(h, uint8(4-j))
						case j > 4:
							h = g.right(h, uint8(j-4))
						}
						q = g.or(q, g.and(h, c16))
					}
					VMOVUPS(g.sub(g.mul(number(q), dl), ml), offset(dst, 4*(32*j+e)))
				}
			}
		})
	}

	g.decoder("q6K", 256, 210, 64, func() { low4, low6, c32 = g.bits(15), g.bits(0x30), g.bits(32) }, func(dst, src reg.GPVirtual, local Mem) {
		g.perSub(func(e int) reg.VecVirtual { return number(g.signed(offset(src, 192+e))) }, 16, g.half(offset(src, 208)), local)
		for half := range 2 {
			for part := range 4 {
				for e := 0; e < 32; e += g.v {
					q := g.unsigned(offset(src, 64*half+part%2*32+e))
					if part < 2 {
						q = g.and(q, low4)
					} else {
						q = g.right(q, 4)
					}
					h := g.unsigned(offset(src, 128+32*half+e))
					switch part {
					case 0:
						h = g.left(h, 4)
					case 1:
						h = g.left(h, 2)
					case 3:
						h = g.right(h, 2)
					}
					v := number(g.subI(g.or(q, g.and(h, low6)), c32))
					j := 8*half + 2*part + e/16
					VMOVUPS(g.mul(v, g.sub1(local, 0, j)), offset(dst, 4*(128*half+32*part+e)))
				}
			}
		}
	})
}

func (g *isa) smallDecoders() {
	var one, three, low Op
	g.decoder("tq20", 256, 66, 0, func() { one, three = g.bits(1), g.bits(3) }, func(dst, src reg.GPVirtual, _ Mem) {
		d := g.half(offset(src, 64))
		for half := range 2 {
			for e := 0; e < 32; e += g.v {
				q := g.unsigned(offset(src, 32*half+e))
				for n := range 4 {
					VMOVUPS(g.mul(number(g.subI(g.and(q, three), one)), d), offset(dst, 4*(128*half+32*n+e)))
					if n < 3 {
						VPSRLD(U8(2), q, q)
					}
				}
			}
		}
	})
	g.decoder("tq10", 256, 54, 0, func() { one, low = g.bits(1), g.bits(0xff) }, func(dst, src reg.GPVirtual, _ Mem) {
		d := g.half(offset(src, 52))
		// digits writes n digits of the bytes of one register, apart numbers apart.
		digits := func(q reg.VecVirtual, n, apart, to int, store func(v reg.VecVirtual, m Mem)) {
			for i := range n {
				t := g.addI(q, g.addI(q, q)) // three times: the digit is above the byte
				store(g.mul(number(g.subI(g.right(t, 8), one)), d), offset(dst, 4*(to+apart*i)))
				q = g.and(t, low)
			}
		}
		store := func(v reg.VecVirtual, m Mem) { VMOVUPS(v, m) }
		for e := 0; e < 32; e += g.v {
			digits(g.unsigned(offset(src, e)), 5, 32, e, store)
		}
		for e := 0; e < 16; e += g.v {
			digits(g.unsigned(offset(src, 32+e)), 5, 16, 160+e, store)
		}
		last, q := XMM(), g.vec()
		VMOVD(offset(src, 48), last)
		VPMOVZXBD(last, q)
		digits(q, 4, 4, 240, func(v reg.VecVirtual, m Mem) { VMOVUPS(v.AsX(), m) })
	})
	var shift Op
	g.decoder("q20", 64, 18, 0, func() {
		one, three = g.bits(1), g.bits(3)
		shift = g.load(g.lanesFrom("q20shift", 0, 2))
	}, func(dst, src reg.GPVirtual, _ Mem) {
		d := g.half(offset(src, 0))
		for e := 0; e < 64; e += g.v {
			q := g.vec()
			VPBROADCASTD(offset(src, 2+e/16*4), q)
			if e%16 != 0 {
				VPSRLD(U8(16), q, q)
			}
			VPSRLVD(shift, q, q)
			VMOVUPS(g.mul(number(g.subI(g.and(q, three), one)), d), offset(dst, 4*e))
		}
	})
	var sign Op
	g.decoder("q10", 128, 18, 0, func() {
		sign = g.bits(0x80000000)
		shift = g.load(g.lanesOf("q10shift", func(i int) uint32 { return uint32(31 - i) }))
	}, func(dst, src reg.GPVirtual, _ Mem) {
		d := g.xor(g.half(offset(src, 0)), sign)
		for e := 0; e < 128; e += g.v {
			q := g.vec()
			VPBROADCASTD(offset(src, 2+e/32*4), q)
			if e%32 != 0 {
				VPSRLD(U8(uint8(e%32)), q, q)
			}
			VPSLLVD(shift, q, q)
			VMOVUPS(g.xor(g.and(q, sign), d), offset(dst, 4*e))
		}
	})
}

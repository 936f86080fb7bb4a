package quant

import "math"

// signed8 writes db·g with signs, bit i for element i.
func signed8(y []float32, g *[8]float32, signs uint32, db float32) {
	out := (*[8]float32)(y)
	out[0] = math.Float32frombits(math.Float32bits(db*g[0]) ^ signs<<31)
	out[1] = math.Float32frombits(math.Float32bits(db*g[1]) ^ signs>>1<<31)
	out[2] = math.Float32frombits(math.Float32bits(db*g[2]) ^ signs>>2<<31)
	out[3] = math.Float32frombits(math.Float32bits(db*g[3]) ^ signs>>3<<31)
	out[4] = math.Float32frombits(math.Float32bits(db*g[4]) ^ signs>>4<<31)
	out[5] = math.Float32frombits(math.Float32bits(db*g[5]) ^ signs>>5<<31)
	out[6] = math.Float32frombits(math.Float32bits(db*g[6]) ^ signs>>6<<31)
	out[7] = math.Float32frombits(math.Float32bits(db*g[7]) ^ signs>>7<<31)
}

// signed4 is the same for a group of four.
func signed4(y []float32, g *[4]float32, signs uint32, db float32) {
	out := (*[4]float32)(y)
	out[0] = math.Float32frombits(math.Float32bits(db*g[0]) ^ signs<<31)
	out[1] = math.Float32frombits(math.Float32bits(db*g[1]) ^ signs>>1<<31)
	out[2] = math.Float32frombits(math.Float32bits(db*g[2]) ^ signs>>2<<31)
	out[3] = math.Float32frombits(math.Float32bits(db*g[3]) ^ signs>>3<<31)
}

// shifted8 writes dl·(g + delta).
func shifted8(y []float32, g *[8]float32, dl, delta float32) {
	out := (*[8]float32)(y)
	// g is -1, 0 or 1.
	v := [4]float32{dl * (delta - 1), dl * delta, dl * (delta + 1)}
	for i, f := range g {
		out[i] = v[(int32(f)+1)&3]
	}
}

func dequantizeIQ2_XXS(dst []float32, src []byte) {
	points := floatsIQ2XXS()
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[66*b:66*b+66]
		d := getF16(in)
		for ib := range 8 {
			q, s := in[2+8*ib:], le.Uint32(in[6+8*ib:])
			db := float32(float32(d*(0.5+float32(s>>28))) * 0.25)
			for k := range 4 {
				signed8(y[32*ib+8*k:], &points[q[k]], evenSigns(s>>(7*k)&127), db)
			}
		}
	}
}

func dequantizeIQ2_XS(dst []float32, src []byte) {
	points := floatsIQ2XS()
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[74*b:74*b+74]
		d := getF16(in)
		for i := range 32 {
			q := uint32(le.Uint16(in[2+2*i:]))
			c := in[66+i/4] >> (i / 2 % 2 * 4) & 15
			db := float32(float32(d*(0.5+float32(c))) * 0.25)
			signed8(y[8*i:], &points[q&511], evenSigns(q>>9), db)
		}
	}
}

func dequantizeIQ2_S(dst []float32, src []byte) {
	points := floatsIQ2S()
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[82*b:82*b+82]
		d := getF16(in)
		for i := range 32 {
			c := in[74+i/4] >> (i / 2 % 2 * 4) & 15
			db := float32(float32(d*(0.5+float32(c))) * 0.25)
			at := int(in[2+i]) | int(in[66+i/4]>>(2*(i%4))&3)<<8
			signed8(y[8*i:], &points[at], uint32(in[34+i]), db)
		}
	}
}

func dequantizeIQ3_XXS(dst []float32, src []byte) {
	points := floatsIQ3XXS()
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[98*b:98*b+98]
		d := getF16(in)
		for ib := range 8 {
			s := le.Uint32(in[66+4*ib:])
			db := float32(float32(d*(0.5+float32(s>>28))) * 0.5)
			for k := range 8 {
				signed4(y[32*ib+4*k:], &points[in[2+8*ib+k]], evenSigns(s>>(7*(k/2))&127)>>(k%2*4), db)
			}
		}
	}
}

func dequantizeIQ3_S(dst []float32, src []byte) {
	points := floatsIQ3S()
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[110*b:110*b+110]
		d := getF16(in)
		for k := range 64 {
			c := in[106+k/16] >> (k / 8 % 2 * 4) & 15
			db := float32(d * float32(1+2*int32(c)))
			at := int(in[2+k]) | int(in[66+k/8]>>(k%8)&1)<<8
			signed4(y[4*k:], &points[at], uint32(in[74+k/2]>>(k%2*4)), db)
		}
	}
}

func dequantizeIQ1_S(dst []float32, src []byte) {
	points := floatsIQ1()
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[50*b:50*b+50]
		d := getF16(in)
		for ib := range 8 {
			qh := int(le.Uint16(in[34+2*ib:]))
			dl := float32(d * float32(2*(qh>>12&7)+1))
			delta := float32(iq1Delta)
			if qh&0x8000 != 0 {
				delta = -delta
			}
			for k := range 4 {
				shifted8(y[32*ib+8*k:], &points[int(in[2+4*ib+k])|qh>>(3*k)&7<<8], dl, delta)
			}
		}
	}
}

func dequantizeIQ1_M(dst []float32, src []byte) {
	points := floatsIQ1()
	for b := range len(dst) / superBlock {
		y, in := dst[b*superBlock:(b+1)*superBlock], src[56*b:56*b+56]
		d := fromF16(scaleIQ1M(in))
		for ib := range 16 {
			c := le.Uint16(in[48+ib/4*2:]) >> (3 * (ib % 4)) & 7
			dl := float32(d * float32(2*c+1))
			for k := range 2 {
				qh := int(in[32+ib] >> (4 * k))
				delta := float32(iq1Delta)
				if qh&8 != 0 {
					delta = -delta
				}
				shifted8(y[16*ib+8*k:], &points[int(in[2*ib+k])|qh&7<<8], dl, delta)
			}
		}
	}
}

package quant

// The types whose groups of numbers are rounded to points of a grid: two bits a
// number in groups of 8 (iq2), three bits in groups of 4 (iq3).

// gridFit says how one of these types searches. A sub-block shares a scale.
type gridFit struct {
	grid      *grid
	sub       int     // numbers in a sub-block
	parity    bool    // seven signs for 8 numbers: their product is fixed
	tiny      float32 // a sub-block whose largest number is below is zero
	exactZero bool    // only one that is all zero is
	span      float32 // 2·levels−1: the widest coordinate
	step      float32 // between the scales tried
	tries     int     // on either side
	onGrid    bool    // groups count as on the grid before the first try
	allGroups bool    // if one group was off, refine all
	always    bool    // refine whether or not a group was off
	fromQP    bool    // start from qpQuants' scale
	aborts    *bool   // set where ggml ends the process
}

// subBlock is a sub-block on its way, and what it needs of its super-block.
type subBlock struct {
	all, qw []float32 // the super-block and its weights
	sigma2  float32

	w      [32]float32
	x      [32]float32 // sizes
	levels [32]uint8
	signs  [4]uint32 // of each 8
	scale  float32
}

// fitSub finds scale, levels and signs of a sub-block. It returns false if the
// sub-block is zero.
func (f *gridFit) fitSub(s *subBlock, x, w []float32) bool {
	n, dim := f.sub, f.grid.dim
	for k := range n / 8 {
		s.signs[k] = f.takeSigns(s.x[8*k:8*k+8], x[8*k:8*k+8], w[8*k:8*k+8])
	}
	high := s.x[0]
	for _, v := range s.x[1:n] {
		if !(high > v) {
			high = v
		}
	}
	clear(s.levels[:n])
	s.scale = 0
	if high < f.tiny || f.exactZero && high == 0 {
		return false
	}
	scale := high / f.span
	if f.fromQP {
		scale = qpQuants(4, s.x[:n], s.levels[:], w)
		high = float32(scale * 3)
		if high <= 0 {
			clear(s.levels[:n])
			return false
		}
	}
	var waux [32]float32
	for i, v := range w[:n] {
		waux[i] = sqrt(v)
	}
	var on, trialOn [8]bool
	groups := n / dim
	for k := range groups {
		on[k] = f.onGrid
	}
	best := float32(0)
	var trial [32]uint8
	for is := -f.tries; is <= f.tries; is++ {
		id := (f.span + float32(float32(is)*f.step)) / high
		ts := 1 / id
		for k := range groups {
			trialOn[k] = f.round(trial[dim*k:], s.x[dim*k:], waux[dim*k:], id, ts)
		}
		sumqx, sumq2 := gridSums(trial[:n], s.x[:n], w)
		if sumq2 > 0 && float32(sumqx*sumqx) > float32(best*sumq2) {
			scale = sumqx / sumq2
			best = float32(scale * sumqx)
			copy(s.levels[:n], trial[:n])
			on = trialOn
		}
	}
	off := 0
	for k := range groups {
		if !on[k] {
			off++
		}
	}
	if scale > 0 && (f.always || off > 0) {
		id := 1 / scale
		for k := range groups {
			if f.always || f.allGroups || !on[k] {
				f.round(s.levels[dim*k:], s.x[dim*k:], waux[dim*k:], id, scale)
			}
		}
		sumqx, sumq2 := gridSums(s.levels[:n], s.x[:n], w)
		if sumq2 > 0 {
			scale = sumqx / sumq2
		}
	}
	if scale < 0 { // ggml's own remark: this should never happen
		scale = -scale
		for k := range n / 8 {
			s.signs[k] ^= 0xff
			if f.parity {
				s.signs[k] &= 127
			}
		}
	}
	s.scale = scale
	return true
}

// takeSigns sets size to the absolute values and returns the signs. With parity an
// odd number of signs is mended where it costs least, which leaves one size negative.
func (f *gridFit) takeSigns(size, x, w []float32) uint32 {
	signs, odd := uint32(0), false
	for i, v := range x {
		if v >= 0 {
			size[i] = v
			continue
		}
		size[i] = -v
		signs |= 1 << i
		odd = !odd
	}
	if !f.parity {
		return signs
	}
	if odd {
		at, least := 0, float32(float32(w[0]*x[0])*x[0])
		for i := 1; i < 8; i++ {
			if c := float32(float32(w[i]*x[i]) * x[i]); c < least {
				least, at = c, i
			}
		}
		size[at] = -size[at]
		signs ^= 1 << at
	}
	return signs & 127
}

// round sets the levels of one group to the grid point that suits the scale and
// reports whether plain rounding gave one.
func (f *gridFit) round(levels []uint8, x, waux []float32, id, scale float32) bool {
	g := f.grid
	u := 0
	for i := range g.dim {
		l := clamp(nearest(float32(0.5*(float32(id*x[i])-1))), 0, int32(g.level-1))
		levels[i] = uint8(l)
		u |= int(l) << (i * g.bits)
	}
	at := g.at[u]
	if at >= 0 {
		return true
	}
	best, found := float32(largest), -1
	for _, p := range g.list(at) {
		d2 := float32(0)
		for i, q := range g.odd[int(p)*g.dim : (int(p)+1)*g.dim] {
			diff := float32(scale*float32(q)) - x[i]
			wd := float32(waux[i] * diff)
			d2 += float32(wd * diff)
		}
		if d2 < best {
			best, found = d2, int(p)
		}
	}
	if found < 0 { // every distance overflows
		*f.aborts = true
		found = int(g.list(at)[0])
	}
	for i, q := range g.odd[found*g.dim : (found+1)*g.dim] {
		levels[i] = uint8(q-1) / 2
	}
	return false
}

// gridSums returns Σ w·x·q and Σ w·q² over a sub-block, q = 2·level+1.
func gridSums(levels []uint8, x, w []float32) (sumqx, sumq2 float32) {
	for i, l := range levels {
		q := float32(2*int32(l) + 1)
		wx := float32(w[i] * x[i])
		sumqx += float32(wx * q)
		wq := float32(w[i] * q)
		sumq2 += float32(wq * q)
	}
	return sumqx, sumq2
}

// index returns the grid index of a group's levels.
func (f *gridFit) index(levels []uint8) uint32 {
	g := f.grid
	u, high := 0, uint8(0)
	for i := range g.dim {
		u |= int(levels[i]) << (i * g.bits)
		high = max(high, levels[i])
	}
	// A scale that is no number leaves levels where the search began.
	if int(high) >= g.level || g.at[u] < 0 {
		*f.aborts = true
		return 0
	}
	return uint32(g.at[u])
}

// blockScales quantizes the sub-blocks' scales to 4 bits and returns the step.
func blockScales(scales []float32, codes []uint8) float32 {
	high := top(scales)
	if high == 0 {
		return 0
	}
	d := high / 31
	id := 1 / d
	for i, s := range scales {
		codes[i] = uint8(clamp(nearest(float32(0.5*(float32(id*s)-1))), 0, 15))
	}
	return d
}

// fitIQ2XXS and its like are made on first use, with their grids.
func fitIQ2XXS(h how) gridFit {
	return gridFit{aborts: h.aborts, grid: gridIQ2XXS(), sub: 32, parity: true, tiny: 1e-15, span: 5, step: 0.1, tries: 6, always: true, fromQP: true}
}

func fitIQ2XS(h how) gridFit {
	return gridFit{aborts: h.aborts, grid: gridIQ2XS(), sub: 16, parity: true, tiny: 1e-15, span: 5, step: 0.1, tries: 9, onGrid: true}
}

func fitIQ2S(h how) gridFit {
	return gridFit{aborts: h.aborts, grid: gridIQ2S(), sub: 16, tiny: 1e-8, span: 5, step: 0.1, tries: 9, onGrid: true}
}

func fitIQ3XXS(h how) gridFit {
	return gridFit{aborts: h.aborts, grid: gridIQ3XXS(), sub: 32, parity: true, tiny: 1e-8, span: 15, step: 0.2, tries: 15, onGrid: true}
}

func fitIQ3S(h how) gridFit {
	return gridFit{aborts: h.aborts, grid: gridIQ3S(), sub: 32, exactZero: true, span: 15, step: 0.2, tries: 9, allGroups: true}
}

// start begins a super-block with the weights qw or nil; its mean square is
// multiplied by c.
func (s *subBlock) start(x, qw []float32, c float32) {
	s.all, s.qw = x, qw
	s.sigma2 = c * sumSquares(x) / superBlock
}

// next fits sub-block ib of the super-block; plain gives its weights if there are
// none. It returns false if the sub-block is zero.
func (f *gridFit) next(s *subBlock, ib int, plain func(v, sigma2 float32) float32) bool {
	from := ib * f.sub
	x, w := s.all[from:from+f.sub], s.w[:f.sub]
	if s.qw != nil {
		imatrixWeights(w, s.qw[from:], x, s.sigma2)
	} else {
		for i, v := range x {
			w[i] = plain(v, s.sigma2)
		}
	}
	return f.fitSub(s, x, w)
}

func square(v, _ float32) float32 { return v * v }

func quantizeIQ2_XXS(dst []byte, src, qw []float32, h how) {
	f := fitIQ2XXS(h)
	var s subBlock
	for b := range len(src) / superBlock {
		out := dst[66*b : 66*b+66]
		clear(out)
		var scales [8]float32
		var words [16]uint32
		s.start(src[b*superBlock:(b+1)*superBlock], part(qw, b), 1)
		for ib := range scales {
			if !f.next(&s, ib, square) {
				continue
			}
			scales[ib] = s.scale
			for k := range 4 {
				words[2*ib] |= f.index(s.levels[8*k:]) << (8 * k)
				words[2*ib+1] |= s.signs[k] << (7 * k)
			}
		}
		var codes [8]uint8
		d := blockScales(scales[:], codes[:])
		putF16(out, d)
		if d == 0 && top(scales[:]) == 0 {
			continue
		}
		for ib, c := range codes {
			le.PutUint32(out[2+8*ib:], words[2*ib])
			le.PutUint32(out[6+8*ib:], words[2*ib+1]|uint32(c)<<28)
		}
	}
}

func quantizeIQ2_XS(dst []byte, src, qw []float32, h how) {
	f := fitIQ2XS(h)
	var s subBlock
	for b := range len(src) / superBlock {
		out := dst[74*b : 74*b+74]
		clear(out)
		var scales [16]float32
		var words [32]uint16
		s.start(src[b*superBlock:(b+1)*superBlock], part(qw, b), 1)
		for ib := range scales {
			if !f.next(&s, ib, square) {
				continue
			}
			scales[ib] = s.scale
			for k := range 2 {
				words[2*ib+k] = uint16(f.index(s.levels[8*k:]) | s.signs[k]<<9)
			}
		}
		if top(scales[:]) == 0 {
			continue
		}
		var codes [16]uint8
		putF16(out, blockScales(scales[:], codes[:]))
		for i, w := range words {
			le.PutUint16(out[2+2*i:], w)
		}
		for i := range 8 {
			out[66+i] = codes[2*i] | codes[2*i+1]<<4
		}
	}
}

func quantizeIQ2_S(dst []byte, src, qw []float32, h how) {
	f := fitIQ2S(h)
	var s subBlock
	plain := func(v, sigma2 float32) float32 { return float32(0.25*sigma2) + float32(v*v) }
	for b := range len(src) / superBlock {
		out := dst[82*b : 82*b+82]
		clear(out)
		var scales [16]float32
		s.start(src[b*superBlock:(b+1)*superBlock], part(qw, b), 2)
		for ib := range scales {
			if !f.next(&s, ib, plain) {
				continue
			}
			scales[ib] = s.scale
			for k := range 2 {
				i8 := 2*ib + k
				at := f.index(s.levels[8*k:])
				out[2+i8] = byte(at)
				out[66+i8/4] |= byte(at>>8) << (2 * (i8 % 4))
				out[34+i8] = byte(s.signs[k])
			}
		}
		if top(scales[:]) == 0 {
			continue
		}
		var codes [16]uint8
		putF16(out, float32(blockScales(scales[:], codes[:])*0.9875))
		for i := range 8 {
			out[74+i] = codes[2*i] | codes[2*i+1]<<4
		}
	}
}

func quantizeIQ3_XXS(dst []byte, src, qw []float32, h how) {
	f := fitIQ3XXS(h)
	var s subBlock
	for b := range len(src) / superBlock {
		out := dst[98*b : 98*b+98]
		clear(out)
		var scales [8]float32
		var words [8]uint32
		s.start(src[b*superBlock:(b+1)*superBlock], part(qw, b), 2)
		for ib := range scales {
			if !f.next(&s, ib, square) {
				continue
			}
			scales[ib] = s.scale
			for k := range 8 {
				out[2+8*ib+k] = byte(f.index(s.levels[4*k:]))
			}
			for k := range 4 {
				words[ib] |= s.signs[k] << (7 * k)
			}
		}
		if top(scales[:]) == 0 {
			clear(out)
			continue
		}
		var codes [8]uint8
		putF16(out, float32(blockScales(scales[:], codes[:])*1.0125))
		for ib, w := range words {
			le.PutUint32(out[66+4*ib:], w|uint32(codes[ib])<<28)
		}
	}
}

// quantizeIQ3_S: ggml does not move on in qs and signs over an all-zero
// sub-block, so that what follows lands one sub-block early. how.exact keeps that.
func quantizeIQ3_S(dst []byte, src, qw []float32, h how) {
	f := fitIQ3S(h)
	var s subBlock
	for b := range len(src) / superBlock {
		out := dst[110*b : 110*b+110]
		clear(out)
		var scales [8]float32
		place := 0
		s.start(src[b*superBlock:(b+1)*superBlock], part(qw, b), 2)
		for ib := range scales {
			if !f.next(&s, ib, square) {
				if !h.exact {
					place++
				}
				continue
			}
			scales[ib] = s.scale
			for k := range 8 {
				at := f.index(s.levels[4*k:])
				out[2+8*place+k] = byte(at)
				out[66+ib] |= byte(at>>8) << k
			}
			for k := range 4 {
				out[74+4*place+k] = byte(s.signs[k])
			}
			place++
		}
		if top(scales[:]) == 0 {
			continue
		}
		var codes [8]uint8
		putF16(out, float32(blockScales(scales[:], codes[:])*1.033))
		for i := range 4 {
			out[106+i] = codes[2*i] | codes[2*i+1]<<4
		}
	}
}

package quant

import "math"

// weakSum is the sum of a sub-block's weights at and below which they say
// nothing: with such weights ggml's searches divide zero by zero, or give up
// and leave a scale of 0.
const weakSum = 1e-15

// weakBlocks lists the blocks of a row that have a sub-block without weight.
func (c *Codec) weakBlocks(weights []float32, exact bool) []int {
	if exact || weights == nil || c.sub == 0 {
		return nil
	}
	var weak []int
	for b := 0; b < len(weights); b += int(c.block) {
		for s := b; s < b+int(c.block); s += c.sub {
			sum := float32(0)
			for _, w := range weights[s : s+c.sub] {
				sum += w
			}
			if sum <= weakSum {
				weak = append(weak, b/int(c.block))
				break
			}
		}
	}
	return weak
}

// ones serve blocks whose own weights are useless.
var ones = func() (w [256]float32) {
	for i := range w {
		w[i] = 1
	}
	return w
}()

// mend quantizes the listed blocks again with equal weights, and so any other
// block whose scale came out as no number; it returns how many there were. After
// a kernel it also redoes the blocks of which ggml's bytes decode wrongly. h is
// what the row was quantized with.
func (c *Codec) mend(dst []byte, src, weights []float32, weak []int, h how, kernel bool) int64 {
	h.exact = false
	if kernel && c.lost != nil {
		for b := range len(src) / int(c.block) {
			if x := c.in(src, b); c.lost(x) {
				c.quantize(c.out(dst, b), x, c.in(weights, b), h)
			}
		}
	}
	for _, b := range weak {
		c.equal(dst, src, b, h)
	}
	n := int64(len(weak))
	if c.UsesWeights && c.scales != nil {
		for b := range len(src) / int(c.block) {
			if c.bad(c.out(dst, b), true) && c.equal(dst, src, b, h) {
				n++
			}
		}
	}
	return n
}

// in returns block b of a row or of its weights, which may be nil.
func (c *Codec) in(x []float32, b int) []float32 {
	if x == nil {
		return nil
	}
	return x[b*int(c.block) : (b+1)*int(c.block)]
}

func (c *Codec) out(dst []byte, b int) []byte { return dst[b*int(c.bytes) : (b+1)*int(c.bytes)] }

// equal quantizes one block of a row with equal weights, or if that does not give
// numbers with none. It reports whether the block holds numbers.
func (c *Codec) equal(dst []byte, src []float32, b int, h how) bool {
	out, in := c.out(dst, b), c.in(src, b)
	if c.RowScoped && h.sigma2 == 0 {
		h.sigma2 = sumSquares(src) / float32(len(src))
	}
	c.quantize(out, in, ones[:c.block], h)
	if c.bad(out, true) && !c.NeedsWeights {
		c.quantize(out, in, nil, h)
	}
	return !c.bad(out, true)
}

// hasZeroSub reports whether a super-block has a sub-block of 32 zeros.
func hasZeroSub(x []float32) bool {
	for ; len(x) > 0; x = x[32:] {
		bits := uint32(0)
		for _, v := range x[:32] {
			bits |= math.Float32bits(v) << 1
		}
		if bits == 0 {
			return true
		}
	}
	return false
}

// spreadScale is the offset of a scale that is not in one place: iq1_m's.
const spreadScale = -1

// bad reports whether a block has a scale that is NaN (or, if nanOnly is not
// set, infinite).
func (c *Codec) bad(block []byte, nanOnly bool) bool {
	for _, at := range c.scales {
		h := uint16(0)
		if at == spreadScale {
			h = scaleIQ1M(block)
		} else {
			h = le.Uint16(block[at:])
		}
		if h&0x7c00 == 0x7c00 && (!nanOnly || h&0x3ff != 0) {
			return true
		}
	}
	return false
}

// hugeBits are the bits of 1e18. Squares of greater numbers are infinite, so that
// ggml's searches may find nothing and store a scale of 0.
const hugeBits = 0x5d5e0b6b

// overflow counts what became infinite in f16, or was too large to search.
func (c *Codec) overflow(dst []byte, src []float32) int64 {
	if c.overflows != nil {
		return c.overflows(dst, src)
	}
	if c.scales == nil {
		return 0
	}
	n, huge := int64(0), countFrom(src, hugeBits) > 0
	for b := range len(src) / int(c.block) {
		if c.bad(c.out(dst, b), false) || huge && countFrom(c.in(src, b), hugeBits) > 0 {
			n++
		}
	}
	return n
}

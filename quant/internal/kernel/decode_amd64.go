//go:build !noasm

package kernel

// decode runs a decoder over whole blocks of n numbers.
func decode(f func(dst *float32, src *byte, n int), n int, dst []float32, src []byte) {
	if blocks := len(dst) / n; blocks > 0 {
		f(&dst[0], &src[0], blocks)
	}
}

// FromQ80 decodes q8_0.
func (s *Set) FromQ80(dst []float32, src []byte) { decode(s.q80, 32, dst, src) }

// FromQ40 decodes q4_0.
func (s *Set) FromQ40(dst []float32, src []byte) { decode(s.q40, 32, dst, src) }

// FromQ41 decodes q4_1.
func (s *Set) FromQ41(dst []float32, src []byte) { decode(s.q41, 32, dst, src) }

// FromQ50 decodes q5_0.
func (s *Set) FromQ50(dst []float32, src []byte) { decode(s.q50, 32, dst, src) }

// FromQ51 decodes q5_1.
func (s *Set) FromQ51(dst []float32, src []byte) { decode(s.q51, 32, dst, src) }

// FromQ2K decodes q2_K.
func (s *Set) FromQ2K(dst []float32, src []byte) { decode(s.q2K, 256, dst, src) }

// FromQ3K decodes q3_K.
func (s *Set) FromQ3K(dst []float32, src []byte) { decode(s.q3K, 256, dst, src) }

// FromQ4K decodes q4_K.
func (s *Set) FromQ4K(dst []float32, src []byte) { decode(s.q4K, 256, dst, src) }

// FromQ5K decodes q5_K.
func (s *Set) FromQ5K(dst []float32, src []byte) { decode(s.q5K, 256, dst, src) }

// FromQ6K decodes q6_K.
func (s *Set) FromQ6K(dst []float32, src []byte) { decode(s.q6K, 256, dst, src) }

// FromTQ20 decodes tq2_0.
func (s *Set) FromTQ20(dst []float32, src []byte) { decode(s.tq20, 256, dst, src) }

// FromTQ10 decodes tq1_0.
func (s *Set) FromTQ10(dst []float32, src []byte) { decode(s.tq10, 256, dst, src) }

// FromQ20 decodes q2_0.
func (s *Set) FromQ20(dst []float32, src []byte) { decode(s.q20, 64, dst, src) }

// FromQ10 decodes q1_0.
func (s *Set) FromQ10(dst []float32, src []byte) { decode(s.q10, 128, dst, src) }

package gguf

import (
	"io"
	"slices"

	"github.com/sdtool/sdtool/tensor"
)

// halves gives the offsets of the 16-bit fields in one block of the types whose
// other fields are single bytes. Types missing here, whose blocks hold wider
// words or bit fields spread over words, are refused in big-endian files. The
// facts are the block structs of ggml-common.h and, for q4_0, q8_0, q4_K, q6_K
// and mxfp4, llama.cpp's gguf_convert_endian.py.
var halves = map[tensor.DType][]int{
	tensor.Q4_0:   {0},
	tensor.Q4_1:   {0, 2},
	tensor.Q8_0:   {0},
	tensor.Q2_K:   {80, 82},
	tensor.Q3_K:   {108},
	tensor.Q4_K:   {0, 2},
	tensor.Q5_K:   {0, 2},
	tensor.Q6_K:   {208},
	tensor.IQ4_NL: {0},
	tensor.MXFP4:  {},
}

// swapped reads big-endian data as little-endian.
type swapped struct {
	*tensor.Section
	unit   int   // bytes that are swapped together: an element or a block
	fields []int // offsets of 16-bit fields in a block; nil for whole elements
}

// newSwapped returns the source of big-endian data, or false if the type's byte
// order is not known.
func newSwapped(s *tensor.Section, d tensor.DType) (tensor.Source, bool) {
	if !d.IsQuantized() {
		if d.BlockBytes() == 1 {
			return s, true
		}
		return &swapped{Section: s, unit: int(d.BlockBytes())}, true
	}
	fields, ok := halves[d]
	if !ok {
		return nil, false
	}
	return &swapped{Section: s, unit: int(d.BlockBytes()), fields: fields}, true
}

func (s *swapped) swap(p []byte) {
	for ; len(p) >= s.unit; p = p[s.unit:] {
		if s.fields == nil {
			slices.Reverse(p[:s.unit])
			continue
		}
		for _, at := range s.fields {
			p[at], p[at+1] = p[at+1], p[at]
		}
	}
}

// ReadAt reads whole units where it can, and units cut by the ends of p through
// a small buffer.
func (s *swapped) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.Length {
		return s.Section.ReadAt(p, off)
	}
	want := len(p)
	p = p[:min(int64(want), s.Length-off)]
	unit := int64(s.unit)
	done := 0
	for done < len(p) {
		at := off + int64(done)
		if skip := at % unit; skip != 0 || len(p)-done < s.unit {
			one := make([]byte, s.unit)
			if _, err := s.Section.ReadAt(one, at-skip); err != nil {
				return done, err
			}
			s.swap(one)
			done += copy(p[done:], one[skip:])
			continue
		}
		run := (len(p) - done) / s.unit * s.unit
		n, err := s.Section.ReadAt(p[done:done+run], at)
		whole := n / s.unit * s.unit
		s.swap(p[done : done+whole])
		if done += whole; err != nil {
			return done, err
		}
	}
	if done < want {
		return done, io.EOF
	}
	return done, nil
}

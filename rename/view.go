package rename

import (
	"errors"
	"fmt"
	"io"

	"github.com/sdtool/sdtool/tensor"
)

// joined is the Source of tensors laid end to end.
type joined struct {
	parts []tensor.Source
	size  int64
}

// join returns the parts as one Source. It gives floats directly if all parts do.
func join(parts ...tensor.Source) tensor.Source {
	j := &joined{parts: parts}
	floats := true
	for _, p := range parts {
		j.size += p.Size()
		_, ok := p.(tensor.FloatSource)
		floats = floats && ok
	}
	if floats {
		return &joinedFloats{j}
	}
	return j
}

// Size returns the number of bytes of all parts together.
func (j *joined) Size() int64 { return j.size }

// ReadAt reads across the parts.
func (j *joined) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > j.size {
		return 0, fmt.Errorf("read at %d of %d joined bytes: out of range", off, j.size)
	}
	done := 0
	for _, part := range j.parts {
		if off >= part.Size() {
			off -= part.Size()
			continue
		}
		n := int(min(int64(len(p)-done), part.Size()-off))
		got, err := part.ReadAt(p[done:done+n], off)
		done += got
		if got < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
		if off = 0; done == len(p) {
			return done, nil
		}
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

// joinedFloats is joined where every part computes its floats.
type joinedFloats struct{ *joined }

// ReadFloats reads across the parts.
func (j *joinedFloats) ReadFloats(dst []float32, first int64) error {
	for _, part := range j.parts {
		count := part.Size() / 4
		if first >= count {
			first -= count
			continue
		}
		n := min(int64(len(dst)), count-first)
		if err := part.(tensor.FloatSource).ReadFloats(dst[:n], first); err != nil {
			return err
		}
		if dst, first = dst[n:], 0; len(dst) == 0 {
			return nil
		}
	}
	if len(dst) > 0 {
		return fmt.Errorf("read %d floats beyond the end of joined tensors", len(dst))
	}
	return nil
}

// span is a run of bytes of a Source.
type span struct {
	of       tensor.Source
	from, to int64
}

// cut returns bytes [from, to) of a Source. A part of a file stays one.
func cut(s tensor.Source, from, to int64) tensor.Source {
	if f, ok := s.(*tensor.Section); ok {
		c := *f
		c.Offset, c.Length = f.Offset+from, to-from
		return &c
	}
	if _, ok := s.(tensor.FloatSource); ok && from%4 == 0 {
		return &spanFloats{span{s, from, to}}
	}
	return &span{s, from, to}
}

// Size returns the number of bytes.
func (s *span) Size() int64 { return s.to - s.from }

// ReadAt reads inside the run.
func (s *span) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.Size() {
		return 0, fmt.Errorf("read at %d of %d bytes: out of range", off, s.Size())
	}
	n := min(int64(len(p)), s.Size()-off)
	got, err := s.of.ReadAt(p[:n], s.from+off)
	if got == len(p) {
		return got, nil
	}
	if int64(got) == n {
		err = io.EOF
	}
	return got, err
}

// spanFloats is span of a Source that computes its floats.
type spanFloats struct{ span }

// ReadFloats reads inside the run.
func (s *spanFloats) ReadFloats(dst []float32, first int64) error {
	if first < 0 || 4*(first+int64(len(dst))) > s.Size() {
		return fmt.Errorf("read %d floats at %d of %d: out of range", len(dst), first, s.Size()/4)
	}
	return s.of.(tensor.FloatSource).ReadFloats(dst, s.from/4+first)
}

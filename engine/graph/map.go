package graph

import (
	"fmt"
	"os"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/tensor"
)

// MapFiles lets Load use weights where they lie in their files, as a mapped part of
// memory, if they are stored in the type they are kept in and the device is a CPU:
// nothing is copied, and what a network does not touch is not read. The files may be
// closed after Load, but must neither be changed nor become shorter until Close.
func (w *Weights) MapFiles() { w.mapped = true }

// mapping is a part of a file in memory, with the buffer over it.
type mapping struct {
	memory []byte
	buffer *native.Buffer
}

func (m mapping) close() error {
	m.buffer.Close()
	return unmapFile(m.memory)
}

// inFile returns where a weight can be used from: a file and an offset that suits the
// type's scalars, which are at most 4 bytes wide (ggml's block structs hold f16 and
// bytes; f32 is the widest plain type).
func (w *Weights) inFile(x *weight) (*os.File, int64, bool) {
	s, ok := x.source.(*tensor.Section)
	if !ok || x.dtype != x.info.DType || s.Length == 0 || s.Length != x.t.Bytes() {
		return nil, 0, false
	}
	width := int64(2)
	if x.dtype == tensor.F32 {
		width = 4
	}
	f, ok := s.File.(*os.File)
	return f, s.Offset, ok && s.Offset%width == 0
}

// mapAll maps what can be mapped and places those weights, file by file. Where the
// system cannot map, weights are left to be read.
func (w *Weights) mapAll() error {
	if !w.mapped || !canMap || w.device.main.Device.Kind != native.CPU {
		return nil
	}
	type span struct {
		from, to int64
		weights  []*weight
	}
	spans := make(map[*os.File]*span)
	for _, x := range w.order {
		f, offset, ok := w.inFile(x)
		if !ok {
			continue
		}
		s := spans[f]
		if s == nil {
			s = &span{from: offset}
			spans[f] = s
		}
		s.from, s.to = min(s.from, offset), max(s.to, offset+x.t.Bytes())
		s.weights = append(s.weights, x)
	}
	page := int64(os.Getpagesize())
	for f, s := range spans {
		from := s.from / page * page
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if info.Size() < s.to {
			return fmt.Errorf("map %s: it has %d bytes, its tensors end at %d", f.Name(), info.Size(), s.to)
		}
		memory, err := mapFile(f, from, s.to-from)
		if err != nil {
			continue // a file system that cannot; reading works everywhere
		}
		buffer, err := w.device.Lib.Wrap(memory)
		if err != nil {
			_ = unmapFile(memory)
			return err
		}
		w.mappings = append(w.mappings, mapping{memory, buffer})
		for _, x := range s.weights {
			_, offset, _ := w.inFile(x)
			if err := buffer.Place(x.t, offset-from); err != nil {
				return fmt.Errorf("tensor %q: %w", x.info.Name, err)
			}
			x.inPlace = true
		}
	}
	return nil
}

// Mapped returns how many bytes of the weights lie in their files.
func (w *Weights) Mapped() int64 {
	var n int64
	for _, x := range w.order {
		if x.inPlace {
			n += x.t.Bytes()
		}
	}
	return n
}

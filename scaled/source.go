package scaled

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/sdtool/sdtool/tensor"
)

// chunk is the most elements decoded at a time: memory per reader stays below
// 6 bytes times this, besides the caller's.
const chunk = 1 << 18

// source is the Source of a decoded weight: float32 computed as it is read.
type source struct {
	*plan
	cols, count int64
}

func newSource(p *plan) *source {
	info := tensor.Info{Shape: p.shape}
	return &source{plan: p, cols: info.Cols(), count: info.Rows() * info.Cols()}
}

// Size returns the size of the decoded weight in bytes.
func (s *source) Size() int64 { return 4 * s.count }

var rawPool = sync.Pool{New: func() any { return new([chunk + 1]byte) }}

// ReadFloats decodes the elements from first on.
func (s *source) ReadFloats(dst []float32, first int64) error {
	if first < 0 || int64(len(dst)) > s.count-first {
		return fmt.Errorf("read %d elements at %d of %q, which has %d: out of range", len(dst), first, s.stored.Name, s.count)
	}
	raw := rawPool.Get().(*[chunk + 1]byte)
	defer rawPool.Put(raw)
	for len(dst) > 0 {
		n := min(len(dst), chunk)
		if err := s.decode(dst[:n], first, raw[:]); err != nil {
			return err
		}
		dst, first = dst[n:], first+int64(n)
	}
	return nil
}

func (s *source) decode(dst []float32, first int64, raw []byte) error {
	if s.rotate <= 1 {
		return s.multiply(dst, first, raw)
	}
	from := first / s.rotate * s.rotate
	to := roundUp(first+int64(len(dst)), s.rotate)
	whole := make([]float32, to-from)
	for done := int64(0); done < to-from; done += chunk {
		part := whole[done:min(done+chunk, to-from)]
		if err := s.multiply(part, from+done, raw); err != nil {
			return err
		}
	}
	work := make([]float64, s.rotate)
	for at := int64(0); at < to-from; at += s.rotate {
		unrotate(whole[at:at+s.rotate], work)
	}
	copy(dst, whole[first-from:])
	return nil
}

// multiply decodes at most chunk elements and applies their scales.
func (s *source) multiply(dst []float32, first int64, raw []byte) error {
	if err := s.codes.read(&s.stored, dst, first, raw); err != nil {
		return err
	}
	last := first + int64(len(dst)) - 1
	loaded, err := s.grid.load(first/s.cols, last/s.cols+1)
	if err != nil {
		return err
	}
	for len(dst) > 0 {
		row, col := first/s.cols, first%s.cols
		n := min(s.cols-col, int64(len(dst)))
		loaded.times(dst[:n], row, col)
		dst, first = dst[n:], first+n
	}
	return nil
}

// unrotate undoes ConvRot on one group in place. The rotation is the Kronecker
// power of ½·[[1,1,1,-1],[1,1,-1,1],[1,-1,1,1],[-1,1,1,1]], which is symmetric
// and orthogonal and so its own inverse (comfy-kitchen, tensor/int8_utils.py). One
// base-4 digit of the index is transformed at a time, in float64: the result is
// rounded once.
func unrotate(group []float32, work []float64) {
	for i, v := range group {
		work[i] = float64(v)
	}
	for stride := 1; stride < len(work); stride *= 4 {
		for base := 0; base < len(work); base += 4 * stride {
			for i := base; i < base+stride; i++ {
				a, b, c, d := work[i], work[i+stride], work[i+2*stride], work[i+3*stride]
				work[i] = (a + b + c - d) / 2
				work[i+stride] = (a + b - c + d) / 2
				work[i+2*stride] = (a - b + c + d) / 2
				work[i+3*stride] = (b - a + c + d) / 2
			}
		}
	}
	for i, v := range work {
		group[i] = float32(v)
	}
}

// ReadAt gives the decoded weight as little-endian bytes, for readers that do
// not ask for floats.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.Size() {
		return 0, fmt.Errorf("read at %d of %q, which has %d bytes: out of range", off, s.stored.Name, s.Size())
	}
	total := int(min(int64(len(p)), s.Size()-off))
	values := make([]float32, min(chunk, total/4+2))
	for done := 0; done < total; {
		at := off + int64(done)
		first, skip := at/4, int(at%4)
		n := min(len(values), (total-done+skip+3)/4)
		if err := s.ReadFloats(values[:n], first); err != nil {
			return done, err
		}
		done += putFloats(p[done:total], values[:n], skip)
	}
	if total < len(p) {
		return total, io.EOF
	}
	return total, nil
}

// putFloats writes values to p without the first skip bytes and returns how
// many bytes it wrote.
func putFloats(p []byte, values []float32, skip int) int {
	done := 0
	for _, v := range values {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
		done += copy(p[done:], b[skip:])
		skip = 0
	}
	return done
}

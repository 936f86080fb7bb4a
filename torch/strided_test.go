package torch

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

// naive gathers a tensor element by element.
func naive(storage []byte, width, offset int64, shape, strides []int64) []byte {
	if len(shape) == 0 {
		return append([]byte(nil), storage[offset*width:(offset+1)*width]...)
	}
	var out []byte
	for i := range shape[0] {
		out = append(out, naive(storage, width, offset+i*strides[0], shape[1:], strides[1:])...)
	}
	return out
}

// counting counts the reads of a storage.
type counting struct {
	*bytes.Reader
	reads int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	return c.Reader.ReadAt(p, off)
}

func newStrided(t *testing.T, storage []byte, width, offset int64, shape, strides []int64) (*strided, *counting) {
	t.Helper()
	s := &strided{width: width, shape: shape, strides: strides}
	first, err := s.check(offset, int64(len(storage)))
	require.NoError(t, err)
	r := &counting{Reader: bytes.NewReader(storage)}
	s.base = tensor.Section{File: r, Offset: first, Length: int64(len(storage)) - first}
	return s, r
}

func TestAnyRangeOfAnyViewIsGathered(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		width := []int64{1, 2, 4, 8}[random.IntN(4)]
		offset := random.Int64N(5)
		need := offset + 1
		var shape, strides []int64
		for range random.IntN(5) {
			n, stride := 1+random.Int64N(5), random.Int64N(12)
			shape, strides = append(shape, n), append(strides, stride)
			need += (n - 1) * stride
		}
		storage := make([]byte, need*width)
		for i := range storage {
			storage[i] = byte(random.Uint32())
		}
		s, _ := newStrided(t, storage, width, offset, shape, strides)
		want := naive(storage, width, offset, shape, strides)
		require.Equal(t, int64(len(want)), s.Size())
		from := random.IntN(len(want) + 1)
		p := make([]byte, random.IntN(len(want)+3))
		n, err := s.ReadAt(p, int64(from))
		require.Equal(t, min(len(p), len(want)-from), n)
		require.Equal(t, want[from:from+n], p[:n], "shape %v strides %v", shape, strides)
		if n < len(p) {
			require.ErrorIs(t, err, io.EOF)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestATransposeIsReadInRuns(t *testing.T) {
	const rows, cols = 256, 300
	storage := make([]byte, rows*cols*4)
	s, r := newStrided(t, storage, 4, 0, []int64{cols, rows}, []int64{1, cols})
	_, err := s.ReadAt(make([]byte, s.Size()), 0)
	require.NoError(t, err)
	assert.Equal(t, rows, r.reads, "one read for each row of the storage")
}

func TestAnExpandedAxisIsReadOnce(t *testing.T) {
	s, r := newStrided(t, []byte{1, 2}, 2, 0, []int64{1000}, []int64{0})
	p := make([]byte, 2000)
	_, err := s.ReadAt(p, 0)
	require.NoError(t, err)
	assert.Equal(t, bytes.Repeat([]byte{1, 2}, 1000), p)
	assert.Equal(t, 1, r.reads)
}

func TestViewsBeyondTheirStorageAreRefused(t *testing.T) {
	for _, c := range []struct {
		name           string
		offset         int64
		shape, strides []int64
	}{
		{"offset", 8, nil, nil},
		{"negative offset", -1, nil, nil},
		{"last element", 0, []int64{3, 3}, []int64{3, 1}},
		{"negative axis", 0, []int64{-1}, []int64{1}},
		{"negative stride", 4, []int64{2}, []int64{-1}},
		{"overflowing shape", 0, []int64{1 << 32, 1 << 32}, []int64{0, 0}},
		{"overflowing bytes", 0, []int64{1 << 62}, []int64{0}},
		{"overflowing span", 0, []int64{3}, []int64{1 << 62}},
		{"overflowing sum", 0, []int64{2, 2}, []int64{1 << 62, 1 << 62}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &strided{width: 4, shape: c.shape, strides: c.strides}
			_, err := s.check(c.offset, 32)
			assert.Error(t, err)
		})
	}
	s := &strided{width: 4, shape: []int64{0, 5}, strides: []int64{1 << 62, 1 << 62}}
	_, err := s.check(1<<62, 0)
	assert.NoError(t, err, "an empty tensor looks at nothing")
}

func TestReadsOutsideATensorAreRefused(t *testing.T) {
	s, _ := newStrided(t, make([]byte, 64), 4, 0, []int64{4, 4}, []int64{1, 4})
	for _, off := range []int64{-1, 65} {
		_, err := s.ReadAt(make([]byte, 1), off)
		assert.ErrorContains(t, err, "out of range")
	}
}

func BenchmarkTranspose(b *testing.B) {
	const n = 1024
	storage := make([]byte, n*n*4)
	s := &strided{width: 4, shape: []int64{n, n}, strides: []int64{1, n}}
	s.base = tensor.Section{File: bytes.NewReader(storage), Length: int64(len(storage))}
	if _, err := s.check(0, int64(len(storage))); err != nil {
		b.Fatal(err)
	}
	p := make([]byte, len(storage))
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if _, err := s.ReadAt(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}

package imatrix

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// datBytes builds .dat files by hand, independent of the writer under test.
type datBytes struct{ bytes.Buffer }

func (b *datBytes) i32(vs ...int32) *datBytes {
	for _, v := range vs {
		binary.Write(b, binary.LittleEndian, v)
	}
	return b
}

func (b *datBytes) entry(name string, calls int32, values ...float32) *datBytes {
	b.i32(int32(len(name)))
	b.WriteString(name)
	b.i32(calls, int32(len(values)))
	binary.Write(b, binary.LittleEndian, values)
	return b
}

func writeFile(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.dat")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func openDat(t *testing.T, data []byte) *File {
	t.Helper()
	f, err := Open(writeFile(t, data))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestDatWithEveryTail(t *testing.T) {
	for _, c := range []struct {
		name    string
		tail    func(*datBytes)
		dataset []string
	}{
		{"none", func(*datBytes) {}, nil},
		{"last chunk", func(b *datBytes) { b.i32(0) }, nil},
		{"data set", func(b *datBytes) { b.i32(7, 9); b.WriteString("wiki.test") }, []string{"wiki.test"}},
		{"empty data set name", func(b *datBytes) { b.i32(7, 0) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b datBytes
			b.i32(2).entry("w", 4, 0.5, 2).entry("a", 3, 1)
			c.tail(&b)
			f := openDat(t, b.Bytes())
			assert.Equal(t, c.dataset, f.Info().Datasets)
			require.Equal(t, []Header{{"w", 1, 2}, {"a", 1, 1}}, f.Headers())
			e, err := f.Read(0)
			require.NoError(t, err)
			assert.Equal(t, []float64{0.5, 2}, e.Sums)
			assert.Equal(t, []int64{4}, e.Counts)
			assert.Equal(t, int64(4), e.Calls)
		})
	}
}

func TestDatRefusesDamage(t *testing.T) {
	one := func() *datBytes { return (&datBytes{}).i32(1) }
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"empty file", nil, ErrTruncated},
		{"three bytes", []byte{1, 0, 0}, ErrTruncated},
		{"no entries", (&datBytes{}).i32(0).Bytes(), ErrEmpty},
		{"negative entries", (&datBytes{}).i32(-1).Bytes(), ErrFormat},
		{"fault 58: 2^30 entries", (&datBytes{}).i32(1<<30).entry("w", 1, 1).Bytes(), ErrFormat},
		{"fault 58: name length -1", one().i32(-1, 0, 0, 0, 0, 0).Bytes(), ErrFormat},
		{"empty name", one().entry("", 1, 1, 1).Bytes(), ErrFormat},
		{"name longer than the file", one().i32(100000, 0, 0, 0, 0).Bytes(), ErrFormat},
		{"negative calls", one().entry("w", -1, 1).Bytes(), ErrFormat},
		{"no values", one().i32(1).append("w").i32(1, 0, 0, 0).Bytes(), ErrFormat},
		{"2^31-1 values", one().i32(1).append("w").i32(1, math.MaxInt32, 0).Bytes(), ErrTruncated},
		{"cut in the values", cut(one().entry("w", 1, 1, 2, 3).Bytes(), 2), ErrTruncated},
		{"cut in the tail", cut(one().entry("w", 1, 1).i32(0).Bytes(), 1), ErrTruncated},
		{"data set name longer than the file", one().entry("w", 1, 1).i32(0, 5).Bytes(), ErrFormat},
		{"bytes after the end", one().entry("w", 1, 1).i32(0, 0, 9).Bytes(), ErrFormat},
		{"fault 56: NaN", one().entry("w", 1, float32(math.NaN())).Bytes(), ErrNotFinite},
		{"fault 56: Inf", one().entry("w", 1, float32(math.Inf(1))).Bytes(), ErrNotFinite},
		{"fault 56: negative", one().entry("w", 1, 1, -1).Bytes(), ErrNotFinite},
		{"fault 58: one name, two lengths", (&datBytes{}).i32(2).entry("blk.0", 1, 1).entry("blk.0", 1, make([]float32, 64)...).Bytes(), ErrDuplicate},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeFile(t, c.data)
			_, err := Open(path)
			require.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, path)
			var fe *FileError
			assert.ErrorAs(t, err, &fe)
		})
	}
}

func (b *datBytes) append(s string) *datBytes { b.WriteString(s); return b }

func cut(p []byte, n int) []byte { return p[:len(p)-n] }

func TestDatRoundTripIsByteEqual(t *testing.T) {
	var b datBytes
	b.i32(2).entry("a", 3, 1.1, 1e-20, 3e30).entry("b", 7, 0, 0.3).i32(7, 3)
	b.WriteString("set")
	var out bytes.Buffer
	loss, err := WriteDat(&out, openDat(t, b.Bytes()))
	require.NoError(t, err)
	assert.Equal(t, Loss{}, loss)
	assert.Equal(t, b.Bytes(), out.Bytes())
}

func TestFault054PartialExpertsAreKept(t *testing.T) {
	s, err := NewMemory(Info{}, []*Entry{{
		Header: Header{"moe", 3, 2}, Sums: []float64{2, 4, 0, 0, 8, 8}, Counts: []int64{2, 0, 4}, Calls: 5,
	}, {Header: Header{"never", 2, 1}, Sums: []float64{0, 0}, Counts: []int64{0, 0}}})
	require.NoError(t, err)
	var out bytes.Buffer
	loss, err := WriteDat(&out, s)
	require.NoError(t, err)
	assert.Equal(t, []string{"moe"}, loss.Unseen)
	assert.Equal(t, []string{"moe"}, loss.Experts)
	assert.Equal(t, []string{"never"}, loss.Empty)

	e, err := openDat(t, out.Bytes()).Read(0)
	require.NoError(t, err)
	assert.Equal(t, []float64{5, 10, 5, 5, 10, 10}, e.Sums, "the unseen expert counts as a mean of 1")
	w, err := e.Weights(3, 2)
	require.NoError(t, err)
	assert.Equal(t, []float32{5, 10, 5, 5, 10, 10}, w)
}

func TestWriteRefusesWhatReadWouldRefuse(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1} {
		s, err := NewMemory(Info{}, []*Entry{{Header: Header{"w", 1, 1}, Sums: []float64{bad}, Counts: []int64{1}, Calls: 1}})
		require.NoError(t, err)
		var out bytes.Buffer
		_, err = WriteDat(&out, s)
		assert.ErrorIs(t, err, ErrNotFinite)
		assert.ErrorContains(t, err, `"w"`)
		assert.Zero(t, out.Len())
	}
	empty, _ := NewMemory(Info{}, nil)
	_, err := WriteDat(&bytes.Buffer{}, empty)
	assert.ErrorIs(t, err, ErrEmpty)
}

package tensor_test

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

func TestInfoSizes(t *testing.T) {
	const huge = int64(1) << 40
	for _, c := range []struct {
		name  string
		dtype tensor.DType
		shape []int64
		elems int64
		rows  int64
		cols  int64
		bytes int64
		err   error
	}{
		{"scalar", tensor.F32, nil, 1, 1, 1, 4, nil},
		{"vector", tensor.BF16, []int64{7}, 7, 1, 7, 14, nil},
		{"matrix", tensor.F16, []int64{3, 64}, 192, 3, 64, 384, nil},
		{"empty axis", tensor.F32, []int64{0, 4}, 0, 0, 4, 0, nil},
		{"five axes", tensor.F16, []int64{8, 16, 1, 2, 2}, 512, 256, 2, 1024, nil},
		{"more than 2^31 elements", tensor.F16, []int64{1 << 20, 4096}, 1 << 32, 1 << 20, 4096, 1 << 33, nil},
		{"blocks (fault 35)", tensor.Q8_0, []int64{4, 64}, 256, 4, 64, 272, nil},
		{"row that no block fits", tensor.Q8_0, []int64{4, 30}, 120, 4, 30, 0, tensor.ErrBlock},
		{"whole tensor fits, row does not", tensor.Q4_K, []int64{4, 96}, 384, 4, 96, 0, tensor.ErrBlock},
		{"scalar is no block", tensor.Q4_0, nil, 1, 1, 1, 0, tensor.ErrBlock},
		{"packed pairs", tensor.F4E2M1, []int64{2, 3}, 6, 2, 3, 3, nil},
		{"odd count of packed pairs", tensor.F4E2M1, []int64{3}, 3, 1, 3, 0, tensor.ErrBlock},
		{"element overflow", tensor.F32, []int64{huge, huge}, 0, 0, 0, 0, tensor.ErrOverflow},
		{"overflow behind a zero axis", tensor.F32, []int64{0, huge, huge}, 0, 0, 0, 0, tensor.ErrOverflow},
		{"byte overflow", tensor.F64, []int64{math.MaxInt64 / 2}, math.MaxInt64 / 2, 1, math.MaxInt64 / 2, 0, tensor.ErrOverflow},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := tensor.Info{Name: "x", DType: c.dtype, Shape: c.shape}
			bytes, err := info.Bytes()
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			} else {
				require.NoError(t, err)
				assert.Equal(t, c.bytes, bytes)
			}
			if c.elems > 0 || c.err == nil {
				n, err := info.Elements()
				require.NoError(t, err)
				assert.Equal(t, c.elems, n)
				assert.Equal(t, c.rows, info.Rows())
				assert.Equal(t, c.cols, info.Cols())
			}
		})
	}
	_, err := tensor.Elements([]int64{2, -1})
	assert.ErrorContains(t, err, "negative axis in shape [2,-1]")
}

func TestAlignUp(t *testing.T) {
	for _, c := range []struct{ n, align, want int64 }{{0, 32, 0}, {1, 32, 32}, {32, 32, 32}, {33, 1, 33}} {
		got, err := tensor.AlignUp(c.n, c.align)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
	_, err := tensor.AlignUp(math.MaxInt64, 32)
	assert.ErrorIs(t, err, tensor.ErrOverflow)
}

func TestSectionReads(t *testing.T) {
	s := &tensor.Section{File: strings.NewReader("0123456789"), Path: "m.bin", Offset: 2, Length: 5}
	read := func(n int, off int64) (string, error) {
		p := make([]byte, n)
		got, err := s.ReadAt(p, off)
		return string(p[:got]), err
	}
	got, err := read(5, 0)
	assert.NoError(t, err)
	assert.Equal(t, "23456", got)

	got, err = read(4, 3)
	assert.ErrorIs(t, err, io.EOF)
	assert.Equal(t, "56", got, "a read must not leave the section")

	_, err = read(1, 6)
	assert.ErrorContains(t, err, "out of range")
	_, err = read(1, -1)
	assert.ErrorContains(t, err, "out of range")
}

func TestSectionOfAFileThatShrank(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.bin")
	require.NoError(t, os.WriteFile(path, make([]byte, 100), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s := &tensor.Section{File: f, Path: path, Offset: 50, Length: 50}
	require.NoError(t, os.Truncate(path, 60))

	n, err := s.ReadAt(make([]byte, 50), 0)
	assert.Equal(t, 10, n)
	require.True(t, errors.Is(err, io.ErrUnexpectedEOF))
	assert.ErrorContains(t, err, path)
	assert.ErrorContains(t, err, "got 10 of 50 bytes")
}

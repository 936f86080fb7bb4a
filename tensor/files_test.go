package tensor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(path, []byte("four"), 0o666))
	var set, part tensor.Files
	file, size, err := part.Open(path)
	require.NoError(t, err)
	require.EqualValues(t, 4, size)
	set.Adopt(&part)
	require.NoError(t, set.Check())
	require.NoError(t, os.WriteFile(path, []byte("grown"), 0o666))
	var changed *tensor.ChangedError
	require.ErrorAs(t, set.Check(), &changed)
	require.NoError(t, set.Close())
	_, err = file.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, os.ErrClosed)
	require.NoError(t, part.Close(), "the set has closed it")
	require.NoError(t, set.Close(), "twice is allowed")
	_, _, err = set.Open(dir)
	require.ErrorIs(t, err, tensor.ErrNotRegular)
}

func TestSameName(t *testing.T) {
	for _, c := range []struct {
		names []string
		index int
		twice bool
	}{{nil, 0, false}, {[]string{"a"}, 0, false}, {[]string{"b", "a", "c"}, 0, false}, {[]string{"b", "a", "b"}, 2, true}, {[]string{"", "x", ""}, 2, true}} {
		i, twice := tensor.SameName(len(c.names), func(i int) string { return c.names[i] })
		require.Equal(t, c.twice, twice, "%q", c.names)
		require.Equal(t, c.index, i, "%q", c.names)
	}
}

package tensor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "модель é.bin")
	require.NoError(t, os.WriteFile(path, []byte("12345"), 0o600))
	f, size, err := tensor.OpenRegular(path)
	require.NoError(t, err)
	assert.Equal(t, int64(5), size)
	require.NoError(t, f.Close())

	_, _, err = tensor.OpenRegular(folder)
	assert.ErrorIs(t, err, tensor.ErrNotRegular)
	assert.ErrorContains(t, err, "it is a directory")
	_, _, err = tensor.OpenRegular(filepath.Join(folder, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = tensor.OpenRegular("a\x00b")
	assert.Error(t, err)
}

func TestLinksToRegularFilesAreFollowed(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "blob"), []byte("12345"), 0o600))
	link, circle := filepath.Join(folder, "link"), filepath.Join(folder, "circle")
	if err := os.Symlink("blob", link); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	require.NoError(t, os.Symlink("circle", circle))
	f, size, err := tensor.OpenRegular(link)
	require.NoError(t, err)
	assert.Equal(t, int64(5), size)
	require.NoError(t, f.Close())
	_, _, err = tensor.OpenRegular(circle)
	assert.Error(t, err)
}

func TestForeignFilesAreNamed(t *testing.T) {
	for _, c := range []struct{ head, want string }{
		{"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"},
		{"<!DOCTYPE html>", "an HTML or XML page"}, {"\ufeff \n<html>", "an HTML or XML page"},
		{"GGUF\x03", "a GGUF file"}, {"PK\x03\x04", "a zip archive"}, {"\x80\x02", "a Python pickle"},
		{"{\"a\"", "JSON text"}, {"\x1f\x8b", "a gzip archive"}, {"\x93NUMPY", "a numpy array"},
		{string(make([]byte, 64)), "nothing but zero bytes"},
	} {
		assert.Contains(t, tensor.Foreign([]byte(c.head)), c.want, "%q", c.head)
	}
	for _, head := range []string{"", "hello", "\x00\x01", strings.Repeat("\x07", 64)} {
		assert.Empty(t, tensor.Foreign([]byte(head)), "%q", head)
	}
}

func TestStampsNoticeChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.bin")
	require.NoError(t, os.WriteFile(path, make([]byte, 100), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	stamp, err := tensor.NewStamp(f, path)
	require.NoError(t, err)
	assert.Equal(t, int64(100), stamp.Size())
	require.NoError(t, stamp.Check())

	var changed *tensor.ChangedError
	require.NoError(t, os.Truncate(path, 101))
	require.ErrorAs(t, stamp.Check(), &changed)
	assert.Equal(t, "it grew from 100 to 101 bytes", changed.What)
	require.NoError(t, os.Truncate(path, 99))
	require.ErrorAs(t, stamp.Check(), &changed)
	assert.Equal(t, "it shrank from 100 to 99 bytes", changed.What)
	require.NoError(t, os.Truncate(path, 100))
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1_000_000_000, 0)))
	require.ErrorAs(t, stamp.Check(), &changed)
	assert.Contains(t, changed.What, "it was written to at 2001-09-09")

	require.NoError(t, f.Close())
	assert.ErrorIs(t, stamp.Check(), os.ErrClosed)
}

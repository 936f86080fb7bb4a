package tensor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrNotRegular is wrapped by OpenRegular for directories, FIFOs, sockets and
// devices: readers need positioned reads and a size that means something.
var ErrNotRegular = errors.New("not a regular file")

// OpenRegular opens a regular file for positioned reads and returns its size.
// The kind is looked at before opening, because opening a FIFO blocks until
// somebody writes to it.
func OpenRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if err := regular(path, info); err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err = f.Stat()
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func regular(path string, info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return fmt.Errorf("open %s: %w: it is a directory", path, ErrNotRegular)
	case info.Mode()&fs.ModeNamedPipe != 0:
		return fmt.Errorf("open %s: %w: it is a pipe", path, ErrNotRegular)
	}
	return fmt.Errorf("open %s: %w: its mode is %s", path, ErrNotRegular, info.Mode().Type())
}

// foreign lists how files that often stand where a checkpoint was expected begin.
var foreign = []struct{ magic, what string }{
	{"version https://git-lfs", "a Git LFS pointer, not the file it stands for; fetch it with git lfs pull"},
	{"GGUF", "a GGUF file"},
	{"PK\x03\x04", "a zip archive, as torch checkpoints are"},
	{"\x80\x02", "a Python pickle, as old torch checkpoints are"},
	{"\x1f\x8b", "a gzip archive"},
	{"\x28\xb5\x2f\xfd", "a Zstandard archive"},
	{"\x89HDF\r\n", "an HDF5 file"},
	{"\x93NUMPY", "a numpy array"},
	{"lmgg", "a GGML file of a kind older than GGUF"},
	{"tjgg", "a GGJT file, which is older than GGUF"},
}

// Foreign names what a file seems to be from its first bytes (64 are enough),
// in words that finish the sentence "this is …"; "" if it cannot say. Readers
// ask once they have found that the bytes are not their own format.
func Foreign(head []byte) string {
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return f.what
		}
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case len(text) > 0 && text[0] == '<':
		return "an HTML or XML page, not a model; the download went to the wrong address or needs a login"
	case len(text) > 0 && text[0] == '{':
		return "JSON text"
	case len(head) > 0 && allZero(head):
		return "nothing but zero bytes, as an unfinished download is"
	}
	return ""
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

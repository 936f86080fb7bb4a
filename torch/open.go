package torch

import (
	"errors"
	"io"

	"github.com/sdtool/sdtool/tensor"
)

// File is an opened checkpoint.
type File struct {
	Path    string
	Size    int64 // in bytes
	Tensors []tensor.Tensor
	Skipped []Skipped // what is in the file and was not taken, in order
	Dict    string    // key of the state dict, as "state_dict"; "" for the outermost dict

	files tensor.Files
}

// Skipped is something in a checkpoint that is not a tensor of its state dict.
type Skipped struct {
	Name string // its key, after those of the dicts it is in
	What string // in words: "an int", "a Python object of …"
}

// Close closes the file; the tensors' sources cannot be read afterwards.
// Closing twice is allowed.
func (f *File) Close() error { return f.files.Close() }

// Check returns a *tensor.ChangedError if the file has another size or modification
// time than when it was opened. Ask after the last read.
func (f *File) Check() error { return f.files.Check() }

// Open opens the checkpoint at path and checks everything but the tensors' data.
// Errors are *FormatError, *GlobalError, and ErrNoTensors, wrapped.
func Open(path string) (*File, error) {
	var files tensor.Files
	file, size, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := OpenReaderAt(file, size, path)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	f.files = files
	return f, nil
}

// OpenReaderAt reads a checkpoint of the given size through r, which stays open
// until the caller closes it; path is for messages. Errors are those of Open.
func OpenReaderAt(r io.ReaderAt, size int64, path string) (*File, error) {
	root, m, err := read(r, size, path)
	if err != nil {
		return nil, err
	}
	w := &walker{r: r, path: path, machine: m, file: &File{Path: path, Size: size},
		names: make(map[string]struct{}), clean: make(map[any]bool)}
	if err := w.walk(root); err != nil {
		return nil, err
	}
	return w.file, nil
}

// read tells the forms apart by their first bytes.
func read(r io.ReaderAt, size int64, path string) (any, *machine, error) {
	head := make([]byte, min(512, size))
	if err := tensor.ReadFull(r, path, head, 0); err != nil {
		return nil, nil, err
	}
	foreign := func(msg string) (any, *machine, error) {
		return nil, nil, &FormatError{Path: path, Kind: KindForeign, Offset: -1, Msg: msg}
	}
	switch {
	case len(head) == 0:
		return foreign("the file is empty")
	case len(head) >= 4 && string(head[:4]) == zipLocal:
		return readZip(r, size, path)
	case len(head) > 262 && string(head[257:262]) == "ustar":
		return foreign("a tar archive, as torch before version 0.2 wrote, which is not read; load it with torch and save it again")
	case head[0] == 0x80 || pickled(head):
		return readLegacy(r, size, path)
	}
	if what := tensor.Foreign(head[:min(64, len(head))]); what != "" {
		return foreign("not a torch checkpoint: this is " + what)
	}
	return foreign("not a torch checkpoint: it is neither a zip archive nor a pickle")
}

// pickled reports whether a file begins like a pickle of protocol 0 or 1.
func pickled(head []byte) bool {
	switch head[0] {
	case '(', ']', '}', 'c', 'L', 'I':
		return tensor.Foreign(head[:min(64, len(head))]) == ""
	}
	return false
}

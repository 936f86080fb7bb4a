package imatrix

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// Format is a file form of an importance matrix.
type Format uint8

// File forms.
const (
	FormatDat  Format = iota // legacy .dat
	FormatGGUF               // GGUF, as llama-imatrix writes now
)

// String returns "dat" or "gguf".
func (f Format) String() string {
	if f == FormatGGUF {
		return "gguf"
	}
	return "dat"
}

// ParseFormat returns the form with the given name.
func ParseFormat(name string) (Format, error) {
	switch name {
	case "dat":
		return FormatDat, nil
	case "gguf":
		return FormatGGUF, nil
	}
	return 0, fmt.Errorf("unknown importance-matrix format %q (want dat or gguf)", name)
}

// File is the Set of an opened file. Close it when done.
type File struct {
	Path    string
	Format  Format
	headers []Header
	info    Info
	read    func(i int) (*Entry, error)
	close   func() error
}

// Open opens an importance matrix of either form, told apart by content, and
// checks everything in it. Errors are of type *FileError.
func Open(path string) (*File, error) {
	f, err := open(path)
	if err == nil {
		return f, nil
	}
	var fe *FileError
	if errors.As(err, &fe) {
		return nil, err
	}
	return nil, &FileError{Path: path, Err: err}
}

func open(path string) (*File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: not a regular file (%s)", ErrFormat, st.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if isGGUF(f) {
		f.Close()
		return openGGUF(path)
	}
	out, err := OpenReaderAt(f, st.Size(), path)
	if err != nil {
		f.Close()
		return nil, err
	}
	out.close = f.Close
	return out, nil
}

func isGGUF(r io.ReaderAt) bool {
	magic := make([]byte, 4)
	n, _ := r.ReadAt(magic, 0)
	return n == 4 && string(magic) == "GGUF"
}

// OpenReaderAt is Open for a file of the given size behind r, which stays open until
// the caller closes it; path is for messages. GGUF files in parts are not followed.
func OpenReaderAt(r io.ReaderAt, size int64, path string) (*File, error) {
	if isGGUF(r) {
		g, err := gguf.OpenReaderAt(r, size, path)
		if err != nil {
			return nil, err
		}
		return fromGGUF(g, path)
	}
	entries, info, err := readDat(r, size)
	if err != nil {
		head := make([]byte, 64)
		n, _ := r.ReadAt(head, 0)
		if what := other(head[:n]); what != "" && !errors.Is(err, ErrEmpty) {
			return nil, fmt.Errorf("%w: this is %s", ErrFormat, what)
		}
		return nil, err
	}
	out := &File{Path: path, Format: FormatDat, info: info, close: func() error { return nil }}
	for _, e := range entries {
		out.headers = append(out.headers, e.Header)
	}
	out.read = func(i int) (*Entry, error) { return entries[i].read(r) }
	return out, nil
}

func openGGUF(path string) (*File, error) {
	g, err := gguf.Open(path)
	if err != nil {
		if g != nil {
			g.Close()
		}
		return nil, err
	}
	out, err := fromGGUF(g, path)
	if err != nil {
		g.Close()
		return nil, err
	}
	out.close = g.Close
	return out, nil
}

func fromGGUF(g *gguf.File, path string) (*File, error) {
	m, err := newGGUFMatrix(g)
	if err == nil {
		err = m.checkAll(path)
	}
	if err != nil {
		return nil, err
	}
	return &File{Path: path, Format: FormatGGUF, headers: m.headers, info: m.info, read: m.read, close: func() error { return nil }}, nil
}

// Headers lists the entries in file order.
func (f *File) Headers() []Header { return f.headers }

// Info returns what the file says about itself.
func (f *File) Info() Info { return f.info }

// Read reads entry i from the file.
func (f *File) Read(i int) (*Entry, error) {
	e, err := f.read(i)
	if err != nil {
		return nil, &FileError{Path: f.Path, Entry: f.headers[i].Name, Err: err}
	}
	return e, nil
}

// Close closes the file; the Set cannot be read afterwards.
func (f *File) Close() error { return f.close() }

// Write writes a Set in the given form; see WriteDat and WriteGGUF.
func Write(w io.Writer, s Set, form Format) (Loss, error) {
	if form == FormatGGUF {
		return WriteGGUF(w, s)
	}
	return WriteDat(w, s)
}

// other names what a file seems to be that is no importance matrix; "" if it
// cannot say.
func other(head []byte) string {
	if len(head) > 9 && head[8] == '{' && head[9] == '"' {
		return "a safetensors file"
	}
	return tensor.Foreign(head)
}

package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/sdtool/sdtool/tensor"
)

// File is an opened safetensors file or sharded set.
type File struct {
	Metadata map[string]string // __metadata__ of the first file; nil if it has none
	Tensors  []tensor.Tensor   // file after file, each in the order of its data
	Paths    []string          // one, or every shard in order
	Index    string            // path of the index, or ""
	Unlisted []string          // tensors in the shards that the index does not name
	Size     int64             // of all files, in bytes; the index is not counted

	files tensor.Files
}

// Close closes the files; the tensors' sources cannot be read afterwards.
// Closing twice is allowed.
func (f *File) Close() error { return f.files.Close() }

// Check returns a *tensor.ChangedError if a file has another size or modification
// time than when it was opened. Ask after the last read.
func (f *File) Check() error { return f.files.Check() }

// Open opens one safetensors file and checks all of its header. Malformed files
// make a *FormatError. A file that lacks data at the end makes a *TruncatedError
// and gives a *File too, so that its header can be shown, but it is closed and
// its tensors cannot be read.
func Open(path string) (*File, error) {
	f, err := openOne(path)
	if f != nil && err != nil {
		f.Close()
	}
	return f, err
}

// openOne is Open, but leaves a truncated file open.
func openOne(path string) (*File, error) {
	var files tensor.Files
	file, size, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := OpenReaderAt(file, size, path)
	if f == nil {
		return nil, errors.Join(err, files.Close())
	}
	f.files = files
	return f, err
}

// OpenReaderAt reads a file of the given size through r, which stays open until
// the caller closes it; path is for messages. Errors are those of Open.
func OpenReaderAt(r io.ReaderAt, size int64, path string) (*File, error) {
	text, err := readHeader(r, size, path)
	if err != nil {
		return nil, err
	}
	h, err := parseHeader(text, path, 8)
	if err != nil {
		return nil, explain(err, r, size, path)
	}
	f := &File{Metadata: h.metadata, Paths: []string{path}, Size: size}
	return f.place(h.entries, r, 8+int64(len(text)), path)
}

// readHeader returns the JSON text.
func readHeader(r io.ReaderAt, size int64, path string) ([]byte, error) {
	fail := func(off int64, format string, args ...any) ([]byte, error) {
		return nil, explain(&FormatError{Path: path, Kind: KindHeaderLength, Offset: off, Msg: fmt.Sprintf(format, args...)}, r, size, path)
	}
	switch {
	case size == 0:
		return fail(-1, "the file is empty")
	case size < 8:
		return fail(-1, "found %d bytes, want at least 8 for the header length", size)
	}
	var b [8]byte
	if err := tensor.ReadFull(r, path, b[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(b[:])
	switch {
	case n > maxHeader:
		return fail(0, "found a header length of %d bytes, want at most %d", n, maxHeader)
	case int64(n) > size-8:
		return fail(0, "found a header length of %d bytes, but only %d follow", n, size-8)
	}
	text := make([]byte, n)
	return text, tensor.ReadFull(r, path, text, 8)
}

// explain replaces an error about the first bytes by one that says what the file
// is, if it can be told.
func explain(err error, r io.ReaderAt, size int64, path string) error {
	var fe *FormatError
	if !errors.As(err, &fe) || fe.Kind != KindHeaderLength && fe.Kind != KindHeaderStart {
		return err
	}
	head := make([]byte, min(64, size))
	if tensor.ReadFull(r, path, head, 0) != nil {
		return err
	}
	if what := tensor.Foreign(head); what != "" {
		return &FormatError{Path: path, Kind: KindForeign, Offset: -1, Msg: "not a safetensors file: this is " + what}
	}
	if len(head) > 8 && fe.Kind == KindHeaderLength && !bytes.ContainsAny(head[8:9], "{ \t\r\n") {
		return &FormatError{Path: path, Kind: KindForeign, Offset: -1, Msg: fmt.Sprintf("not a model file: no header of safetensors, GGUF or torch begins with the bytes % x", head[:min(12, len(head))])}
	}
	return err
}

// place checks that the entries, in the order of their data, fill the file from
// start on, and makes the sources.
func (f *File) place(entries []entry, r io.ReaderAt, start int64, path string) (*File, error) {
	f.Tensors = make([]tensor.Tensor, len(entries))
	sections := make([]tensor.Section, len(entries))
	var next int64
	var cut *TruncatedError
	for i := range entries {
		e := &entries[i]
		if err := e.check(next, path); err != nil {
			return nil, err
		}
		next = e.end
		end, err := tensor.CheckedAdd(start, e.end)
		if err != nil {
			return nil, e.fail(path, KindOffset, "its data would end beyond 2^63 bytes")
		}
		if end > f.Size {
			if cut == nil {
				cut = &TruncatedError{Path: path, Tensor: e.info.Name, Have: f.Size}
			}
			cut.Need = end
		}
		sections[i] = tensor.Section{File: r, Path: path, Offset: start + e.begin, Length: e.end - e.begin}
		f.Tensors[i] = tensor.Tensor{Info: e.info, Source: &sections[i]}
	}
	if cut != nil {
		return f, cut
	}
	if end := start + next; end < f.Size {
		return nil, &FormatError{Path: path, Kind: KindTrailing, Offset: end,
			Msg: fmt.Sprintf("found %d bytes after the end of the tensor data", f.Size-end)}
	}
	return f, nil
}

func (e *entry) fail(path string, kind ErrorKind, format string, args ...any) error {
	return &FormatError{Path: path, Kind: kind, Tensor: e.info.Name, Offset: e.at, Msg: fmt.Sprintf(format, args...)}
}

// check compares an entry with itself and with the end of the one before.
func (e *entry) check(next int64, path string) error {
	switch {
	case e.begin < next:
		return e.fail(path, KindOffset, "found data_offsets [%d,%d], which overlap the tensor before, want them to begin at %d", e.begin, e.end, next)
	case e.begin > next:
		return e.fail(path, KindOffset, "found data_offsets [%d,%d], which leave a hole, want them to begin at %d", e.begin, e.end, next)
	}
	n, err := e.info.Bytes()
	if err != nil {
		return &FormatError{Path: path, Kind: KindShape, Tensor: e.info.Name, Offset: e.at, Msg: "shape and dtype do not fit", Err: err}
	}
	if n != e.end-e.begin {
		return e.fail(path, KindSize, "found data_offsets of %d bytes, but dtype %s and shape %s want %d",
			e.end-e.begin, e.info.DType, tensor.ShapeString(e.info.Shape), n)
	}
	return nil
}

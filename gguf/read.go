package gguf

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sdtool/sdtool/tensor"
)

const magic = "GGUF"

// Limits on tensors.
const (
	maxTensors = 1 << 17 // in one file
	maxName    = 65535   // bytes in a name that is read
	maxAxes    = 8       // of a tensor that is read
)

// File is an opened GGUF file or split set.
type File struct {
	Version   int
	BigEndian bool
	Alignment int64    // of tensor data, in bytes; that of the first part
	Metadata  Metadata // that of the first part, split.* keys included
	Tensors   []tensor.Tensor
	Paths     []string // one, or every part of the split set in order
	Size      int64    // of all parts, in bytes
	Trailing  int64    // bytes after the data of the last tensor that are not padding, in all parts

	files tensor.Files
}

// Close closes the files; the tensors' sources cannot be read afterwards.
// Closing twice is allowed.
func (f *File) Close() error { return f.files.Close() }

// Check returns a *tensor.ChangedError if a file has another size or modification
// time than when it was opened. Ask after the last read.
func (f *File) Check() error { return f.files.Check() }

// Open opens the GGUF file at path and checks all of its header. If it is a part
// of a split set, the whole set is opened, from whichever part; parts that are
// not there make a *MissingPartsError.
//
// Malformed files make a *FormatError. With two errors there is a *File too, so
// that its header can be shown, but it is closed and its tensors cannot be read:
// *TruncatedError, when data is missing at the end, and *EndianError.
func Open(path string) (*File, error) {
	first, err := openPart(path)
	if first == nil {
		return nil, err
	}
	f := first
	if count, ok := splitCount(first.Metadata); ok {
		set, setErr := openSet(path, first, err, count)
		if set == nil {
			return nil, errors.Join(setErr, first.Close())
		}
		f, err = set, setErr
	}
	if err != nil {
		f.Close()
		return f, err
	}
	return f, nil
}

// openPart opens one file, leaving split keys alone. Like Open it may return
// both a file, still open, and an error.
func openPart(path string) (*File, error) {
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

// OpenReaderAt reads one file of the given size through r, which stays open
// until the caller closes it; path is for messages. Split keys are not followed.
// Errors are those of Open.
func OpenReaderAt(r io.ReaderAt, size int64, path string) (*File, error) {
	s := newScanner(r, size, path)
	f := &File{Paths: []string{path}, Size: size}
	nTensors, nKeys, err := s.start(f)
	if err != nil {
		return nil, err
	}
	if f.Metadata, err = s.metadata(nKeys); err != nil {
		return nil, err
	}
	if f.Alignment, err = f.Metadata.alignment(); err != nil {
		return nil, withPath(err, path)
	}
	if err := s.tensors(f, nTensors); err != nil {
		return f.unlessFatal(err)
	}
	return f, nil
}

// unlessFatal keeps the file for the errors that leave its header sound.
func (f *File) unlessFatal(err error) (*File, error) {
	var cut *TruncatedError
	var endian *EndianError
	if errors.As(err, &cut) || errors.As(err, &endian) {
		return f, err
	}
	return nil, err
}

func withPath(err error, path string) error {
	var fe *FormatError
	if errors.As(err, &fe) {
		fe.Path = path
	}
	return err
}

// start reads magic, version and counts.
func (s *scanner) start(f *File) (nTensors, nKeys int64, err error) {
	head := make([]byte, min(64, s.size))
	if err := tensor.ReadFull(s.r, s.path, head, 0); err != nil {
		return 0, 0, err
	}
	if len(head) < len(magic) || string(head[:len(magic)]) != magic {
		return 0, 0, s.notGGUF(head)
	}
	if _, err := s.bytes(len(magic), "the magic", ""); err != nil {
		return 0, 0, err
	}
	version, err := s.u32("the version")
	if err != nil {
		return 0, 0, err
	}
	if version != 0 && version&0xFFFF == 0 {
		s.order, f.BigEndian = binary.BigEndian, true
		version = bits.ReverseBytes32(version)
	}
	if version < 1 || version > 3 {
		return 0, 0, s.failAt(4, KindVersion, "found version %d, want 1 to 3", version)
	}
	f.Version, s.v1 = int(version), version == 1
	// The smallest tensor: a name of one byte, no axes, type, offset. The smallest
	// entry: a key of one byte, type, a value of one byte.
	if nTensors, err = s.count("tensors", "", s.lengthBytes()+1+4+4+8, maxTensors); err != nil {
		return 0, 0, err
	}
	nKeys, err = s.count("metadata entries", "", s.lengthBytes()+1+4+1, maxKeys)
	return nTensors, nKeys, err
}

func (s *scanner) notGGUF(head []byte) error {
	if len(head) == 0 {
		return s.failAt(-1, KindMagic, "the file is empty")
	}
	if what := tensor.Foreign(head); what != "" {
		return s.failAt(-1, KindMagic, "not a GGUF file: this is %s", what)
	}
	return s.failAt(-1, KindMagic, "not a GGUF file: found %q at the start, want %q", head[:min(len(magic), len(head))], magic)
}

// directory is what a tensor's entry says, before its place is checked.
type directory struct {
	info   tensor.Info
	offset int64 // from the start of the data
	bytes  int64
	at     int64 // of the entry in the file, for messages
}

// tensors reads n entries, then checks that the data is where they say.
func (s *scanner) tensors(f *File, n int64) error {
	entries := make([]directory, n)
	for i := range entries {
		if err := s.entry(&entries[i]); err != nil {
			return err
		}
	}
	s.tensor = ""
	if err := s.duplicates(entries); err != nil {
		return err
	}
	return s.place(f, entries)
}

func (s *scanner) entry(d *directory) error {
	s.tensor = ""
	d.at = s.pos
	name, err := s.str("a tensor name", maxName)
	if err != nil {
		return err
	}
	if msg := badName(name); msg != "" {
		s.tensor = name
		return s.failAt(d.at, KindName, "%s", msg)
	}
	s.tensor, d.info.Name = name, name
	axes, err := s.u32("the number of axes")
	if err != nil {
		return err
	}
	if axes > maxAxes {
		return s.failAt(s.pos-4, KindShape, "found %d axes, want at most %d", axes, maxAxes)
	}
	d.info.Shape = make([]int64, axes)
	for i := range d.info.Shape {
		n, err := s.length("an axis", "")
		if err != nil {
			return err
		}
		d.info.Shape[i] = int64(n)
	}
	slices.Reverse(d.info.Shape) // innermost first in the file
	id, err := s.u32("the type")
	if err != nil {
		return err
	}
	var ok bool
	if d.info.DType, ok = tensor.FromGGML(int32(id)); !ok {
		return s.failAt(s.pos-4, KindDType, "found ggml type %d, which is not known or has been removed", int32(id))
	}
	if d.bytes, err = d.info.Bytes(); err != nil {
		return &FormatError{Path: s.path, Kind: KindShape, Tensor: name, Offset: d.at, Msg: "shape and type do not fit", Err: err}
	}
	offset, err := s.u64("the offset")
	if err != nil {
		return err
	}
	if offset > math.MaxInt64 {
		return s.failAt(s.pos-8, KindOffset, "found data offset %d, want less than 2^63", offset)
	}
	d.offset = int64(offset)
	return nil
}

// badName says what is wrong with a tensor name, or "".
func badName(name string) string {
	switch {
	case name == "":
		return "found an empty tensor name"
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	case strings.IndexByte(name, 0) >= 0:
		return "the name has a NUL in it, where readers in C cut it"
	}
	return ""
}

// duplicates looks for two entries with one name.
func (s *scanner) duplicates(entries []directory) error {
	i, twice := tensor.SameName(len(entries), func(i int) string { return entries[i].info.Name })
	if !twice {
		return nil
	}
	s.tensor = entries[i].info.Name
	return s.failAt(entries[i].at, KindDuplicateTensor, "two tensors have this name")
}

// place checks that each tensor starts where the padded tensors before it end,
// makes the sources and compares the file's size with what they need.
func (s *scanner) place(f *File, entries []directory) error {
	if len(entries) == 0 {
		f.Trailing = max(s.left()-padding(s.pos, f.Alignment), 0)
		return nil
	}
	start, err := tensor.AlignUp(s.pos, f.Alignment)
	if err != nil {
		return s.fail(KindAlignment, "data aligned to %d starts beyond 2^63", f.Alignment)
	}
	f.Tensors = make([]tensor.Tensor, len(entries))
	sections := make([]tensor.Section, len(entries))
	var next int64 // where the next tensor must start
	var cut *TruncatedError
	var endian *EndianError
	for i := range entries {
		d := &entries[i]
		s.tensor = d.info.Name
		if d.offset != next {
			return s.failAt(d.at, KindOffset, "found data offset %d, want %d: right after the tensor before it, padded to %d", d.offset, next, f.Alignment)
		}
		end, err := tensor.CheckedAdd(start+d.offset, d.bytes)
		if err == nil {
			next, err = tensor.AlignUp(d.offset+d.bytes, f.Alignment)
		}
		if err == nil {
			_, err = tensor.CheckedAdd(start, next)
		}
		if err != nil {
			return s.failAt(d.at, KindOffset, "its data would end beyond 2^63 bytes")
		}
		if end > s.size && cut == nil {
			cut = &TruncatedError{Path: s.path, Tensor: d.info.Name, Have: s.size}
		}
		if cut != nil {
			cut.Need = max(cut.Need, end)
		}
		sections[i] = tensor.Section{File: s.r, Path: s.path, Offset: start + d.offset, Length: d.bytes}
		f.Tensors[i] = tensor.Tensor{Info: d.info, Source: &sections[i]}
		if f.BigEndian {
			src, ok := newSwapped(&sections[i], d.info.DType)
			if !ok && endian == nil {
				endian = &EndianError{Path: s.path, Tensor: d.info.Name, DType: d.info.DType}
			} else if ok {
				f.Tensors[i].Source = src
			}
		}
	}
	s.tensor = ""
	switch {
	case cut != nil:
		return cut
	case endian != nil:
		return endian
	}
	f.Trailing = max(s.size-start-next, 0)
	return nil
}

// padding returns how far n is from the next multiple of align.
func padding(n, align int64) int64 {
	if r := n % align; r != 0 {
		return align - r
	}
	return 0
}

package safetensors

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sdtool/sdtool/tensor"
)

// Limits on what is read, and the same on what is laid out.
const (
	maxHeader   = 100_000_000 // bytes, of the safetensors crate
	maxTensors  = 1 << 17     // in one file
	maxAxes     = 64          // of a tensor, of numpy and torch
	maxAllAxes  = 1 << 20     // of all tensors
	maxMetadata = 1 << 16     // entries
	maxName     = 65535       // bytes
)

const metadataKey = "__metadata__"

// entry is one tensor of a header.
type entry struct {
	info       tensor.Info
	begin, end int64 // from the start of the data
	at         int64 // in the file, for messages
}

// header is a parsed header.
type header struct {
	metadata map[string]string
	entries  []entry
}

// headerParser adds to the JSON parser where it is and what is being read.
type headerParser struct {
	parser
	path   string
	base   int64 // offset of the JSON text in the file
	tensor string
	axes   int // seen so far
}

// fault makes a FormatError at the present offset.
func (p *headerParser) fault(kind ErrorKind, format string, args ...any) error {
	return &FormatError{Path: p.path, Kind: kind, Tensor: p.tensor, Offset: p.base + int64(p.i), Msg: fmt.Sprintf(format, args...)}
}

// located makes a FormatError of a syntaxError and leaves others alone.
func (p *headerParser) located(what string, err error) error {
	if syntax, ok := err.(*syntaxError); ok {
		return &FormatError{Path: p.path, Kind: KindJSON, Tensor: p.tensor, Offset: p.base + int64(syntax.offset), Msg: what, Err: err}
	}
	return err
}

// parseHeader parses the JSON text of a header, which lies at base in the file.
// The entries come in the order of their data.
func parseHeader(b []byte, path string, base int64) (*header, error) {
	p := &headerParser{parser: parser{b: b}, path: path, base: base}
	if len(b) == 0 || b[0] != '{' {
		return nil, p.fault(KindHeaderStart, "found %s at the start of the header, want '{'", p.found())
	}
	if !utf8.Valid(b) {
		return nil, p.fault(KindUTF8, "the header is not UTF-8")
	}
	// A tensor has this key, so that there are no more of them; a slice that grew
	// would cost several times its size.
	h := &header{entries: make([]entry, 0, min(bytes.Count(b, []byte(`"data_offsets"`)), maxTensors))}
	metadataSeen := false
	err := p.object(func(key string) error {
		if key != metadataKey {
			return p.entry(h, key)
		}
		if metadataSeen {
			return p.fault(KindDuplicateKey, "the key %q is there twice", key)
		}
		metadataSeen = true
		return p.metadata(h)
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, p.located("the header is not valid", err)
	}
	if err := duplicates(h.entries, path); err != nil {
		return nil, err
	}
	slices.SortStableFunc(h.entries, func(a, b entry) int {
		switch {
		case a.begin != b.begin:
			return cmp(a.begin, b.begin)
		default:
			return cmp(a.end, b.end)
		}
	})
	return h, nil
}

func cmp(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// duplicates looks for two entries with one name.
func duplicates(entries []entry, path string) error {
	i, twice := tensor.SameName(len(entries), func(i int) string { return entries[i].info.Name })
	if !twice {
		return nil
	}
	return &FormatError{Path: path, Kind: KindDuplicateKey, Tensor: entries[i].info.Name, Offset: entries[i].at, Msg: "two tensors have this name"}
}

// metadata reads the value of __metadata__.
func (p *headerParser) metadata(h *header) error {
	if p.literal("null") {
		return nil
	}
	if p.peek() != '{' {
		return p.fault(KindMetadata, "%s: found %s, want an object of strings", metadataKey, p.found())
	}
	h.metadata = make(map[string]string)
	return p.object(func(key string) error {
		if _, ok := h.metadata[key]; ok {
			return p.fault(KindDuplicateKey, "%s: the key %q is there twice", metadataKey, tensor.Clip(key))
		}
		if len(h.metadata) == maxMetadata {
			return p.fault(KindLimit, "%s: found more than %d entries", metadataKey, maxMetadata)
		}
		if p.peek() != '"' {
			return p.fault(KindMetadata, "%s: key %q: found %s, want a string", metadataKey, tensor.Clip(key), p.found())
		}
		v, err := p.str()
		h.metadata[key] = v
		return err
	})
}

// entry reads the value of a tensor's name.
func (p *headerParser) entry(h *header, name string) error {
	p.tensor = name
	defer func() { p.tensor = "" }()
	if msg := badName(name); msg != "" {
		return p.fault(KindName, "%s", msg)
	}
	if len(h.entries) == maxTensors {
		return p.fault(KindLimit, "found more than %d tensors", maxTensors)
	}
	e := entry{info: tensor.Info{Name: name}, at: p.base + int64(p.i)}
	var dtype, shape, offsets bool
	err := p.object(func(key string) error {
		var seen *bool
		var read func(*headerParser, *entry) error
		switch key {
		case "dtype":
			seen, read = &dtype, (*headerParser).dtype
		case "shape":
			seen, read = &shape, (*headerParser).shape
		case "data_offsets":
			seen, read = &offsets, (*headerParser).offsets
		default:
			return p.skip(0)
		}
		if *seen {
			return p.fault(KindDuplicateKey, "the key %q is there twice", key)
		}
		*seen = true
		return read(p, &e)
	})
	if err != nil {
		return p.located("its entry is not valid", err)
	}
	for _, field := range []struct {
		key  string
		seen bool
	}{{"dtype", dtype}, {"shape", shape}, {"data_offsets", offsets}} {
		if !field.seen {
			return p.fault(KindJSON, "its entry has no %q", field.key)
		}
	}
	h.entries = append(h.entries, e)
	return nil
}

// badName says what is wrong with a tensor name, or "".
func badName(name string) string {
	switch {
	case name == "":
		return "found an empty tensor name"
	case len(name) > maxName:
		return fmt.Sprintf("found a tensor name of %d bytes, want at most %d", len(name), maxName)
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	case strings.IndexByte(name, 0) >= 0:
		return "the name has a NUL in it"
	}
	return ""
}

func (p *headerParser) dtype(e *entry) error {
	name, err := p.str()
	if err != nil {
		return err
	}
	d, ok := tensor.FromSafetensors(name)
	if !ok {
		return p.fault(KindDType, "found dtype %q, which is not known", tensor.Clip(name))
	}
	e.info.DType = d
	return nil
}

func (p *headerParser) shape(e *entry) error {
	var shape [maxAxes]int64
	n := 0
	err := p.array(func() error {
		if n == maxAxes || p.axes == maxAllAxes {
			return p.fault(KindLimit, "found more than %d axes", n)
		}
		p.axes++
		axis, err := p.count()
		if _, ok := err.(rangeError); ok {
			return p.fault(KindShape, "an axis is too long: %v", err)
		}
		shape[n] = axis
		n++
		return err
	})
	e.info.Shape = make([]int64, n)
	copy(e.info.Shape, shape[:n])
	return err
}

func (p *headerParser) offsets(e *entry) error {
	var pair [2]int64
	found := 0
	err := p.array(func() error {
		if found == len(pair) {
			return p.fault(KindJSON, "found more than two data_offsets")
		}
		n, err := p.count()
		if _, ok := err.(rangeError); ok {
			return p.fault(KindOffset, "an offset is too big: %v", err)
		}
		pair[found] = n
		found++
		return err
	})
	if err != nil {
		return err
	}
	if found != len(pair) {
		return p.fault(KindJSON, "found %d data_offsets, want two", found)
	}
	if e.begin, e.end = pair[0], pair[1]; e.end < e.begin {
		return p.fault(KindOffset, "found data_offsets [%d,%d], which end before they begin", e.begin, e.end)
	}
	return nil
}

package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/sdtool/sdtool/tensor"
)

// Longest tensor names that readers take, in bytes. Each is one less than the
// GGML_MAX_NAME the reader is built with.
const (
	NameLimitGGML  = 63  // ggml and llama.cpp as they come
	NameLimitComfy = 127 // llama.cpp with ComfyUI-GGUF's patch
	NameLimitSD    = 159 // stable-diffusion.cpp
)

// AxesLimit is the number of axes ggml's readers take.
const AxesLimit = 4

// maxLayoutAlign keeps the padding of the header small. Files that are read may
// have any alignment.
const maxLayoutAlign = 1 << 20

// LayoutOption changes what NewLayout allows.
type LayoutOption func(*layoutRules)

type layoutRules struct{ axes, name int }

// WithAxes allows tensors of up to n axes (8 at most). More than four are read
// by gguf-py, ComfyUI-GGUF, stable-diffusion.cpp and this package, not by ggml.
func WithAxes(n int) LayoutOption { return func(r *layoutRules) { r.axes = min(n, maxAxes) } }

// WithNameLimit sets the longest tensor name, in bytes; without it the limit is
// NameLimitSD, beyond which no reader written in C takes a file.
func WithNameLimit(n int) LayoutOption { return func(r *layoutRules) { r.name = min(n, maxName) } }

// NewLayout lays out a GGUF file, version 3, little-endian: the header, and
// where the data of each tensor goes. Data is aligned to general.alignment if
// the metadata has it (not added otherwise), to 32 if not, and the last tensor
// is padded too. A scalar is written with one axis of 1; leading axes of 1 are
// kept. What the format or its readers cannot hold makes a *FormatError, names
// that are too long a *NameError that lists them all.
func NewLayout(md Metadata, infos []tensor.Info, opts ...LayoutOption) (*tensor.Layout, error) {
	rules := layoutRules{axes: AxesLimit, name: NameLimitSD}
	for _, o := range opts {
		o(&rules)
	}
	align, err := checkMetadata(md)
	if err != nil {
		return nil, err
	}
	if err := checkNames(infos, rules.name); err != nil {
		return nil, err
	}
	b := appendHeader(nil, len(infos), md)
	rel := make([]int64, len(infos)) // offsets from the start of the data
	var next int64
	for i, info := range infos {
		rel[i] = next
		size, err := checkInfo(info, rules.axes)
		if err == nil {
			next, err = tensor.CheckedAdd(next, size)
		}
		if err == nil {
			next, err = tensor.AlignUp(next, align)
		}
		if err != nil {
			return nil, layoutError(KindShape, info.Name, err)
		}
		b = appendEntry(b, info, rel[i])
	}
	start := int64(len(b)) + padding(int64(len(b)), align)
	b = append(b, make([]byte, start-int64(len(b)))...)
	l := &tensor.Layout{Header: b, Offsets: rel}
	if l.Size, err = tensor.CheckedAdd(start, next); err != nil {
		return nil, &FormatError{Kind: KindShape, Offset: -1, Msg: "the file is too big", Err: err}
	}
	for i := range l.Offsets {
		l.Offsets[i] += start
	}
	return l, nil
}

func layoutError(kind ErrorKind, name string, err error) error {
	if fe, ok := err.(*FormatError); ok {
		return fe
	}
	return &FormatError{Kind: kind, Tensor: name, Offset: -1, Msg: "cannot be laid out", Err: err}
}

// checkMetadata refuses what ggml's reader or this package's would refuse, and
// returns the alignment.
func checkMetadata(md Metadata) (align int64, err error) {
	if len(md) > maxKeys {
		return 0, &FormatError{Kind: KindLimit, Offset: -1, Msg: fmt.Sprintf("found %d metadata entries, want at most %d", len(md), maxKeys)}
	}
	seen := make(map[string]struct{}, len(md))
	texts := 0 // strings in arrays
	for _, kv := range md {
		fail := func(kind ErrorKind, format string, args ...any) error {
			return &FormatError{Kind: kind, Key: kv.Key, Offset: -1, Msg: fmt.Sprintf(format, args...)}
		}
		if err := checkKey(kv.Key); err != nil {
			return 0, fail(KindKey, "%v", err)
		}
		if _, ok := seen[kv.Key]; ok {
			return 0, fail(KindDuplicateKey, "the key is there twice")
		}
		seen[kv.Key] = struct{}{}
		if !kv.Value.Valid() {
			return 0, fail(KindValue, "the value is not set")
		}
		if kv.Value.Nested() {
			return 0, fail(KindValue, "found an array of arrays, which ggml does not read")
		}
		if s, ok := kv.Value.Str(); ok && len(s) > maxString {
			return 0, fail(KindLimit, "found a string of %d bytes, want at most %d", len(s), maxString)
		}
		if kv.Value.elem == TypeString && kv.Value.typ == TypeArray {
			texts += kv.Value.Len()
		}
		if kv.Value.Len() > maxArray || texts > maxStrings {
			return 0, fail(KindLimit, "found an array of %d elements, which is too long", kv.Value.Len())
		}
	}
	if align, err = md.alignment(); err == nil && align > maxLayoutAlign {
		err = &FormatError{Kind: KindLimit, Key: KeyAlignment, Offset: -1,
			Msg: fmt.Sprintf("found alignment %d, want at most %d", align, maxLayoutAlign)}
	}
	return align, err
}

func checkNames(infos []tensor.Info, limit int) error {
	if len(infos) > maxTensors {
		return &FormatError{Kind: KindLimit, Offset: -1, Msg: fmt.Sprintf("found %d tensors, want at most %d", len(infos), maxTensors)}
	}
	seen := make(map[string]struct{}, len(infos))
	long := &NameError{Limit: limit}
	for _, info := range infos {
		if msg := badName(info.Name); msg != "" {
			return &FormatError{Kind: KindName, Tensor: info.Name, Offset: -1, Msg: msg}
		}
		if _, ok := seen[info.Name]; ok {
			return &FormatError{Kind: KindDuplicateTensor, Tensor: info.Name, Offset: -1, Msg: "two tensors have this name"}
		}
		seen[info.Name] = struct{}{}
		if len(info.Name) > limit {
			long.Names = append(long.Names, info.Name)
		}
	}
	if len(long.Names) > 0 {
		return long
	}
	return nil
}

// checkInfo returns the bytes of a tensor that the format can hold.
func checkInfo(info tensor.Info, axes int) (int64, error) {
	if len(info.Shape) > axes {
		return 0, &FormatError{Kind: KindShape, Tensor: info.Name, Offset: -1,
			Msg: fmt.Sprintf("found %d axes, want at most %d", len(info.Shape), axes)}
	}
	if _, ok := info.DType.GGML(); !ok {
		return 0, &FormatError{Kind: KindDType, Tensor: info.Name, Offset: -1, Msg: fmt.Sprintf("ggml has no type %s", info.DType)}
	}
	return info.Bytes()
}

func appendHeader(b []byte, tensors int, md Metadata) []byte {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(tensors))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(md)))
	for _, kv := range md {
		b = appendString(b, kv.Key)
		b = binary.LittleEndian.AppendUint32(b, uint32(kv.Value.typ))
		b = appendValue(b, kv.Value)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendEntry(b []byte, info tensor.Info, offset int64) []byte {
	id, _ := info.DType.GGML()
	shape := info.Shape
	if len(shape) == 0 {
		shape = []int64{1}
	}
	b = appendString(b, info.Name)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(shape)))
	for _, n := range slices.Backward(shape) {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(id))
	return binary.LittleEndian.AppendUint64(b, uint64(offset))
}

// appendValue appends a value without its type; the caller has checked that no
// array holds arrays.
func appendValue(b []byte, v Value) []byte {
	le := binary.LittleEndian
	switch x := v.data.(type) {
	case uint8:
		return append(b, x)
	case int8:
		return append(b, byte(x))
	case bool:
		return appendBool(b, x)
	case uint16:
		return le.AppendUint16(b, x)
	case int16:
		return le.AppendUint16(b, uint16(x))
	case uint32:
		return le.AppendUint32(b, x)
	case int32:
		return le.AppendUint32(b, uint32(x))
	case float32:
		return le.AppendUint32(b, math.Float32bits(x))
	case uint64:
		return le.AppendUint64(b, x)
	case int64:
		return le.AppendUint64(b, uint64(x))
	case float64:
		return le.AppendUint64(b, math.Float64bits(x))
	case string:
		return appendString(b, x)
	}
	n := v.Len()
	b = le.AppendUint32(b, uint32(v.elem))
	b = le.AppendUint64(b, uint64(n))
	if x, ok := v.data.([]uint8); ok {
		return append(b, x...)
	}
	for i := range n {
		b = appendValue(b, v.At(i))
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

package safetensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/sdtool/sdtool/tensor"
)

// NewLayout lays out a safetensors file: the header, and where the data of each
// tensor goes, in the given order without gaps. The header is padded with spaces
// so that the data begins at a multiple of 8. A nil metadata writes none, an
// empty one an empty object. What the format or this package's reader cannot
// hold makes a *FormatError.
func NewLayout(metadata map[string]string, infos []tensor.Info) (*tensor.Layout, error) {
	b := append(make([]byte, 8, 4096), '{')
	b, err := appendMetadata(b, metadata)
	if err != nil {
		return nil, err
	}
	if len(infos) > maxTensors {
		return nil, &FormatError{Kind: KindLimit, Offset: -1, Msg: fmt.Sprintf("found %d tensors, want at most %d", len(infos), maxTensors)}
	}
	l := &tensor.Layout{Offsets: make([]int64, len(infos))}
	seen := make(map[string]struct{}, len(infos))
	axes := 0
	for i, info := range infos {
		fail := func(kind ErrorKind, format string, args ...any) (*tensor.Layout, error) {
			return nil, &FormatError{Kind: kind, Tensor: info.Name, Offset: -1, Msg: fmt.Sprintf(format, args...)}
		}
		if msg := badName(info.Name); msg != "" {
			return fail(KindName, "%s", msg)
		}
		if info.Name == metadataKey {
			return fail(KindName, "the name is taken by the format")
		}
		if _, ok := seen[info.Name]; ok {
			return fail(KindDuplicateKey, "two tensors have this name")
		}
		seen[info.Name] = struct{}{}
		dtype, ok := info.DType.Safetensors()
		if !ok {
			return fail(KindDType, "safetensors has no dtype for %s", info.DType)
		}
		if axes += len(info.Shape); len(info.Shape) > maxAxes || axes > maxAllAxes {
			return fail(KindLimit, "found %d axes, want at most %d", len(info.Shape), maxAxes)
		}
		size, err := info.Bytes()
		l.Offsets[i] = l.Size
		if err == nil {
			l.Size, err = tensor.CheckedAdd(l.Size, size)
		}
		if err != nil {
			return nil, &FormatError{Kind: KindShape, Tensor: info.Name, Offset: -1, Msg: "cannot be laid out", Err: err}
		}
		b = appendEntry(b, info, dtype, l.Offsets[i], l.Size)
		if len(b) > maxHeader {
			break
		}
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if len(b)-8 > maxHeader {
		return nil, &FormatError{Kind: KindHeaderLength, Offset: -1,
			Msg: fmt.Sprintf("the header of %d tensors is longer than the %d bytes that readers take", len(infos), maxHeader)}
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	l.Header = b
	if l.Size, err = tensor.CheckedAdd(l.Size, int64(len(b))); err != nil {
		return nil, &FormatError{Kind: KindShape, Offset: -1, Msg: "the file is too big", Err: err}
	}
	for i := range l.Offsets {
		l.Offsets[i] += int64(len(b))
	}
	return l, nil
}

func appendMetadata(b []byte, metadata map[string]string) ([]byte, error) {
	if metadata == nil {
		return b, nil
	}
	if len(metadata) > maxMetadata {
		return nil, &FormatError{Kind: KindLimit, Offset: -1, Msg: fmt.Sprintf("%s: found %d entries, want at most %d", metadataKey, len(metadata), maxMetadata)}
	}
	b = append(append(appendString(b, metadataKey), ':'), '{')
	for i, key := range slices.Sorted(maps.Keys(metadata)) {
		if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
			return nil, &FormatError{Kind: KindMetadata, Offset: -1, Msg: fmt.Sprintf("%s: key %q: found text that is not UTF-8", metadataKey, tensor.Clip(key))}
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(appendString(b, key), ':'), metadata[key])
	}
	return append(b, '}'), nil
}

func appendEntry(b []byte, info tensor.Info, dtype string, begin, end int64) []byte {
	if b[len(b)-1] != '{' || len(b) > 9 {
		b = append(b, ',')
	}
	b = append(appendString(b, info.Name), `:{"dtype":"`...)
	b = append(append(b, dtype...), `","shape":[`...)
	for i, n := range info.Shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, `],"data_offsets":[`...)
	b = append(strconv.AppendInt(b, begin, 10), ',')
	return append(strconv.AppendInt(b, end, 10), `]}`...)
}

// appendString appends a JSON string. Only what JSON wants escaped is.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

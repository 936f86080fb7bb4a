package gguf

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"
)

// Limits on what is read, and the same on what is laid out. Those of ggml are
// its own; the others are far above any model and keep the memory for a hostile
// header near the header's own size.
const (
	maxKey     = 65535   // bytes in a key, of the GGUF specification
	maxString  = 1 << 30 // bytes in a string, of ggml
	maxArray   = 1 << 30 // elements in an array, of ggml
	maxKeys    = 1 << 16 // metadata entries
	maxStrings = 1 << 21 // strings in all arrays of a file
	maxNested  = 1 << 14 // arrays inside arrays, in a file
	maxDepth   = 4       // arrays inside each other
)

// budget counts what a file's metadata has used of the limits.
type budget struct{ strings, nested int64 }

// metadata reads n entries.
func (s *scanner) metadata(n int64) (Metadata, error) {
	md := make(Metadata, 0, n)
	seen := make(map[string]struct{}, n)
	var used budget
	for range n {
		at := s.pos
		key, err := s.str("a metadata key", maxKey)
		if err != nil {
			return nil, err
		}
		if err := checkKey(key); err != nil {
			return nil, s.failAt(at, KindKey, "%v", err)
		}
		s.key = key
		if _, ok := seen[key]; ok {
			return nil, s.failAt(at, KindDuplicateKey, "the key is there twice")
		}
		seen[key] = struct{}{}
		typ, err := s.u32("the value type")
		if err != nil {
			return nil, err
		}
		v, err := s.value(ValueType(typ), 0, &used)
		if err != nil {
			return nil, err
		}
		md = append(md, KV{key, v})
		s.key = ""
	}
	return md, nil
}

type keyError string

func (e keyError) Error() string { return string(e) }

func checkKey(key string) error {
	switch {
	case key == "":
		return keyError("found an empty metadata key")
	case len(key) > maxKey:
		return keyError("found a metadata key of more than 65535 bytes")
	case !utf8.ValidString(key):
		return keyError("found a metadata key that is not UTF-8")
	case strings.IndexByte(key, 0) >= 0:
		return keyError("found a metadata key with a NUL in it, where readers in C cut it")
	}
	return nil
}

func (s *scanner) value(typ ValueType, depth int, used *budget) (Value, error) {
	switch {
	case typ >= numValueTypes:
		return Value{}, s.failAt(s.pos-4, KindValue, "found value type %d, want 0 to %d", uint32(typ), numValueTypes-1)
	case typ == TypeString:
		v, err := s.str("a string", maxString)
		return String(v), err
	case typ == TypeArray:
		return s.array(depth, used)
	}
	b, err := s.bytes(int(valueTypes[typ].bytes), "a value of type ", typ.String())
	if err != nil {
		return Value{}, err
	}
	return scalar(typ, b, s.order), nil
}

// scalar decodes one value of fixed size.
func scalar(typ ValueType, b []byte, order binary.ByteOrder) Value {
	switch typ {
	case TypeU8:
		return U8(b[0])
	case TypeI8:
		return I8(int8(b[0]))
	case TypeU16:
		return U16(order.Uint16(b))
	case TypeI16:
		return I16(int16(order.Uint16(b)))
	case TypeU32:
		return U32(order.Uint32(b))
	case TypeI32:
		return I32(int32(order.Uint32(b)))
	case TypeF32:
		return F32(math.Float32frombits(order.Uint32(b)))
	case TypeBool:
		return Bool(b[0] != 0)
	case TypeU64:
		return U64(order.Uint64(b))
	case TypeI64:
		return I64(int64(order.Uint64(b)))
	case TypeF64:
		return F64(math.Float64frombits(order.Uint64(b)))
	}
	return Value{}
}

func (s *scanner) array(depth int, used *budget) (Value, error) {
	id, err := s.u32("the element type")
	if err != nil {
		return Value{}, err
	}
	elem := ValueType(id)
	switch {
	case elem >= numValueTypes:
		return Value{}, s.failAt(s.pos-4, KindValue, "found element type %d in an array, want 0 to %d", id, numValueTypes-1)
	case elem == TypeString:
		return s.stringArray(used)
	case elem == TypeArray:
		return s.nestedArray(depth, used)
	}
	n, err := s.count("array elements of type ", elem.String(), valueTypes[elem].bytes, maxArray)
	if err != nil {
		return Value{}, err
	}
	return s.scalarArray(elem, int(n))
}

func (s *scanner) stringArray(used *budget) (Value, error) {
	n, err := s.count("strings in arrays", "", s.lengthBytes(), maxStrings-used.strings)
	if err != nil {
		return Value{}, err
	}
	used.strings += n
	out := make([]string, n)
	for i := range out {
		if out[i], err = s.str("a string in an array", maxString); err != nil {
			return Value{}, err
		}
	}
	return StringArray(out), nil
}

func (s *scanner) nestedArray(depth int, used *budget) (Value, error) {
	if depth == maxDepth {
		return Value{}, s.fail(KindLimit, "found arrays inside arrays more than %d deep", maxDepth)
	}
	n, err := s.count("arrays in arrays", "", 4+s.lengthBytes(), maxNested-used.nested)
	if err != nil {
		return Value{}, err
	}
	used.nested += n
	out := make([]Value, n)
	for i := range out {
		if out[i], err = s.array(depth+1, used); err != nil {
			return Value{}, err
		}
	}
	return ArrayOfArrays(out), nil
}

func (s *scanner) scalarArray(elem ValueType, n int) (Value, error) {
	switch elem {
	case TypeU8:
		out := make([]uint8, n)
		return U8Array(out), s.raw(out)
	case TypeI8:
		out, err := elements(s, n, 1, func(b []byte) int8 { return int8(b[0]) })
		return I8Array(out), err
	case TypeU16:
		out, err := elements(s, n, 2, s.order.Uint16)
		return U16Array(out), err
	case TypeI16:
		out, err := elements(s, n, 2, func(b []byte) int16 { return int16(s.order.Uint16(b)) })
		return I16Array(out), err
	case TypeU32:
		out, err := elements(s, n, 4, s.order.Uint32)
		return U32Array(out), err
	case TypeI32:
		out, err := elements(s, n, 4, func(b []byte) int32 { return int32(s.order.Uint32(b)) })
		return I32Array(out), err
	case TypeF32:
		out, err := elements(s, n, 4, func(b []byte) float32 { return math.Float32frombits(s.order.Uint32(b)) })
		return F32Array(out), err
	case TypeBool:
		out, err := elements(s, n, 1, func(b []byte) bool { return b[0] != 0 })
		return BoolArray(out), err
	case TypeU64:
		out, err := elements(s, n, 8, s.order.Uint64)
		return U64Array(out), err
	case TypeI64:
		out, err := elements(s, n, 8, func(b []byte) int64 { return int64(s.order.Uint64(b)) })
		return I64Array(out), err
	default: // TypeF64; the caller has dealt with the types that have no size
		out, err := elements(s, n, 8, func(b []byte) float64 { return math.Float64frombits(s.order.Uint64(b)) })
		return F64Array(out), err
	}
}

// elements decodes n elements of width bytes each.
func elements[T any](s *scanner, n, width int, decode func([]byte) T) ([]T, error) {
	out := make([]T, n)
	for i := range out {
		b, err := s.bytes(width, "an array element", "")
		if err != nil {
			return nil, err
		}
		out[i] = decode(b)
	}
	return out, nil
}

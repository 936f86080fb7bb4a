package gguf

import (
	"fmt"
	"strconv"
	"strings"
)

// ValueType is the type of a metadata value, numbered as in the file.
type ValueType uint32

// Types of metadata values.
const (
	TypeU8 ValueType = iota
	TypeI8
	TypeU16
	TypeI16
	TypeU32
	TypeI32
	TypeF32
	TypeBool
	TypeString
	TypeArray
	TypeU64
	TypeI64
	TypeF64

	numValueTypes
)

// valueTypes gives each type's name and the bytes of one element in the file;
// strings and arrays have no fixed size.
var valueTypes = [numValueTypes]struct {
	name  string
	bytes int64
}{
	TypeU8: {"u8", 1}, TypeI8: {"i8", 1}, TypeU16: {"u16", 2}, TypeI16: {"i16", 2},
	TypeU32: {"u32", 4}, TypeI32: {"i32", 4}, TypeF32: {"f32", 4}, TypeBool: {"bool", 1},
	TypeString: {"string", 0}, TypeArray: {"array", 0},
	TypeU64: {"u64", 8}, TypeI64: {"i64", 8}, TypeF64: {"f64", 8},
}

// String returns the type's name: "u32", "string", "array".
func (t ValueType) String() string {
	if t < numValueTypes {
		return valueTypes[t].name
	}
	return fmt.Sprintf("value type %d", uint32(t))
}

// Value is one metadata value: a scalar, a string or an array of one element
// type. The zero Value is invalid. Values share the slices they were made from;
// nobody changes them afterwards.
type Value struct {
	typ  ValueType
	elem ValueType // of an array
	data any
}

// U8 returns a u8 value.
func U8(v uint8) Value { return Value{typ: TypeU8, data: v} }

// I8 returns an i8 value.
func I8(v int8) Value { return Value{typ: TypeI8, data: v} }

// U16 returns a u16 value.
func U16(v uint16) Value { return Value{typ: TypeU16, data: v} }

// I16 returns an i16 value.
func I16(v int16) Value { return Value{typ: TypeI16, data: v} }

// U32 returns a u32 value.
func U32(v uint32) Value { return Value{typ: TypeU32, data: v} }

// I32 returns an i32 value.
func I32(v int32) Value { return Value{typ: TypeI32, data: v} }

// F32 returns an f32 value.
func F32(v float32) Value { return Value{typ: TypeF32, data: v} }

// Bool returns a bool value.
func Bool(v bool) Value { return Value{typ: TypeBool, data: v} }

// String returns a string value.
func String(v string) Value { return Value{typ: TypeString, data: v} }

// U64 returns a u64 value.
func U64(v uint64) Value { return Value{typ: TypeU64, data: v} }

// I64 returns an i64 value.
func I64(v int64) Value { return Value{typ: TypeI64, data: v} }

// F64 returns an f64 value.
func F64(v float64) Value { return Value{typ: TypeF64, data: v} }

func array(elem ValueType, data any) Value { return Value{typ: TypeArray, elem: elem, data: data} }

// U8Array returns an array of u8.
func U8Array(v []uint8) Value { return array(TypeU8, v) }

// I8Array returns an array of i8.
func I8Array(v []int8) Value { return array(TypeI8, v) }

// U16Array returns an array of u16.
func U16Array(v []uint16) Value { return array(TypeU16, v) }

// I16Array returns an array of i16.
func I16Array(v []int16) Value { return array(TypeI16, v) }

// U32Array returns an array of u32.
func U32Array(v []uint32) Value { return array(TypeU32, v) }

// I32Array returns an array of i32, the only kind comfy.gguf.orig_shape takes.
func I32Array(v []int32) Value { return array(TypeI32, v) }

// F32Array returns an array of f32.
func F32Array(v []float32) Value { return array(TypeF32, v) }

// BoolArray returns an array of bool.
func BoolArray(v []bool) Value { return array(TypeBool, v) }

// StringArray returns an array of strings.
func StringArray(v []string) Value { return array(TypeString, v) }

// U64Array returns an array of u64.
func U64Array(v []uint64) Value { return array(TypeU64, v) }

// I64Array returns an array of i64.
func I64Array(v []int64) Value { return array(TypeI64, v) }

// F64Array returns an array of f64.
func F64Array(v []float64) Value { return array(TypeF64, v) }

// ArrayOfArrays returns an array whose elements are arrays. Such values can be
// read but not laid out: ggml refuses files that hold them.
func ArrayOfArrays(v []Value) Value { return array(TypeArray, v) }

// Type returns the value's type.
func (v Value) Type() ValueType { return v.typ }

// Elem returns the element type of an array.
func (v Value) Elem() ValueType { return v.elem }

// Valid reports whether the value was made by a constructor or a reader.
func (v Value) Valid() bool { return v.data != nil }

// Nested reports whether the value is an array of arrays.
func (v Value) Nested() bool { return v.typ == TypeArray && v.elem == TypeArray }

// Any returns the value as a Go value: uint8 … float64, bool, string, a slice of
// one of these, or []Value for an array of arrays.
func (v Value) Any() any { return v.data }

// Int returns any integer value that fits int64.
func (v Value) Int() (int64, bool) {
	switch x := v.data.(type) {
	case uint8:
		return int64(x), true
	case int8:
		return int64(x), true
	case uint16:
		return int64(x), true
	case int16:
		return int64(x), true
	case uint32:
		return int64(x), true
	case int32:
		return int64(x), true
	case int64:
		return x, true
	case uint64:
		return int64(x), x <= 1<<63-1
	}
	return 0, false
}

// Float returns an f32 or f64 value.
func (v Value) Float() (float64, bool) {
	switch x := v.data.(type) {
	case float32:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// Bool returns a bool value.
func (v Value) Bool() (value, ok bool) {
	value, ok = v.data.(bool)
	return value, ok
}

// Str returns a string value. (String formats a value of any type.)
func (v Value) Str() (string, bool) {
	s, ok := v.data.(string)
	return s, ok
}

// Strings returns an array of strings.
func (v Value) Strings() ([]string, bool) {
	s, ok := v.data.([]string)
	return s, ok
}

// Ints returns an array of any integer type, widened.
func (v Value) Ints() ([]int64, bool) {
	n := v.Len()
	if v.typ != TypeArray || n < 0 {
		return nil, false
	}
	out := make([]int64, n)
	for i := range out {
		x, ok := v.At(i).Int()
		if !ok {
			return nil, false
		}
		out[i] = x
	}
	return out, n > 0 || v.elem.integer()
}

func (t ValueType) integer() bool {
	switch t {
	case TypeF32, TypeF64, TypeBool, TypeString, TypeArray:
		return false
	}
	return t < numValueTypes
}

// Len returns the number of elements of an array, and -1 for any other value.
func (v Value) Len() int {
	switch x := v.data.(type) {
	case []uint8:
		return len(x)
	case []int8:
		return len(x)
	case []uint16:
		return len(x)
	case []int16:
		return len(x)
	case []uint32:
		return len(x)
	case []int32:
		return len(x)
	case []float32:
		return len(x)
	case []bool:
		return len(x)
	case []string:
		return len(x)
	case []uint64:
		return len(x)
	case []int64:
		return len(x)
	case []float64:
		return len(x)
	case []Value:
		return len(x)
	}
	return -1
}

// At returns element i of an array; the caller has asked Len.
func (v Value) At(i int) Value {
	switch x := v.data.(type) {
	case []uint8:
		return U8(x[i])
	case []int8:
		return I8(x[i])
	case []uint16:
		return U16(x[i])
	case []int16:
		return I16(x[i])
	case []uint32:
		return U32(x[i])
	case []int32:
		return I32(x[i])
	case []float32:
		return F32(x[i])
	case []bool:
		return Bool(x[i])
	case []string:
		return String(x[i])
	case []uint64:
		return U64(x[i])
	case []int64:
		return I64(x[i])
	case []float64:
		return F64(x[i])
	case []Value:
		return x[i]
	}
	return Value{}
}

// String formats the value for people, with the first eight elements of an array.
func (v Value) String() string { return v.Format(8) }

// Format formats the value for people. Strings are quoted, arrays show at most
// limit elements and then how many there are.
func (v Value) Format(limit int) string {
	switch x := v.data.(type) {
	case nil:
		return "invalid"
	case string:
		return strconv.Quote(x)
	case bool:
		return strconv.FormatBool(x)
	}
	n := v.Len()
	if n < 0 {
		return fmt.Sprint(v.data)
	}
	parts := make([]string, 0, min(n, limit))
	for i := range min(n, limit) {
		parts = append(parts, v.At(i).Format(limit))
	}
	if n > limit {
		return fmt.Sprintf("[%s, … %d in all]", strings.Join(parts, ", "), n)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

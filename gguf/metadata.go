package gguf

import (
	"fmt"
	"slices"
	"strings"
)

// Keys with a meaning to this package or to most readers of GGUF.
const (
	KeyArchitecture = "general.architecture"
	KeyAlignment    = "general.alignment"
	KeyName         = "general.name"
	KeyFileType     = "general.file_type"
	KeyQuantVersion = "general.quantization_version"

	KeySplitNo      = "split.no"
	KeySplitCount   = "split.count"
	KeySplitTensors = "split.tensors.count"
)

// KV is one metadata entry.
type KV struct {
	Key   string
	Value Value
}

// Metadata is the key-value section of a file, in file order.
type Metadata []KV

// Get returns the value of a key.
func (m Metadata) Get(key string) (Value, bool) {
	for i := range m {
		if m[i].Key == key {
			return m[i].Value, true
		}
	}
	return Value{}, false
}

// Str returns the value of a key that holds a string.
func (m Metadata) Str(key string) (string, bool) {
	v, _ := m.Get(key)
	return v.Str()
}

// Int returns the value of a key that holds an integer of any width.
func (m Metadata) Int(key string) (int64, bool) {
	v, _ := m.Get(key)
	return v.Int()
}

// Set gives a key a value, in its old place or at the end.
func (m *Metadata) Set(key string, v Value) {
	for i := range *m {
		if (*m)[i].Key == key {
			(*m)[i].Value = v
			return
		}
	}
	*m = append(*m, KV{key, v})
}

// Delete removes keys and returns how many of them were there.
func (m *Metadata) Delete(keys ...string) int {
	before := len(*m)
	*m = slices.DeleteFunc(*m, func(kv KV) bool { return slices.Contains(keys, kv.Key) })
	return before - len(*m)
}

// DropSplit removes every split.* key: in a file that is not part of a split
// set they make llama.cpp's loader look for the other parts.
func (m *Metadata) DropSplit() int {
	before := len(*m)
	*m = slices.DeleteFunc(*m, func(kv KV) bool { return strings.HasPrefix(kv.Key, "split.") })
	return before - len(*m)
}

// Clone returns a copy that can be changed without changing m.
func (m Metadata) Clone() Metadata { return slices.Clone(m) }

// defaultAlignment is the alignment of tensor data when no key gives one.
const defaultAlignment = 32

// alignment returns the alignment the metadata asks for.
func (m Metadata) alignment() (int64, error) {
	v, ok := m.Get(KeyAlignment)
	if !ok {
		return defaultAlignment, nil
	}
	n, isU32 := v.Any().(uint32)
	if !isU32 {
		return 0, &FormatError{Kind: KindAlignment, Key: KeyAlignment, Offset: -1,
			Msg: fmt.Sprintf("found a value of type %s, want u32", v.typ)}
	}
	if n == 0 || n&(n-1) != 0 {
		return 0, &FormatError{Kind: KindAlignment, Key: KeyAlignment, Offset: -1,
			Msg: fmt.Sprintf("found alignment %d, want a power of two", n)}
	}
	return int64(n), nil
}

package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/gguf"
)

var update = flag.Bool("update", false, "write testdata/hostile.txt anew; read the difference before it is kept")

// field is a number in a sound file that the corpus bends.
type field struct {
	name      string
	at, width int
}

// marked writes a sound file and notes where its numbers are.
type marked struct {
	*raw
	fields []field
}

func (m *marked) u32(name string, v uint32) *marked {
	m.fields = append(m.fields, field{name, len(m.b), 4})
	m.raw.u32(v)
	return m
}

func (m *marked) length(name string, v uint64) *marked {
	width := 8
	if m.v1 {
		width = 4
	}
	m.fields = append(m.fields, field{name, len(m.b), width})
	m.raw.length(v)
	return m
}

func (m *marked) str(name, v string) *marked {
	m.length(name+" length", uint64(len(v)))
	m.b = append(m.b, v...)
	return m
}

func (m *marked) entry(name string, typ uint32, offset uint64, axes ...uint64) {
	m.str(name+" name", name).u32(name+" axes", uint32(len(axes)))
	for i, n := range axes {
		m.length(fmt.Sprintf("%s axis %d", name, i), n)
	}
	m.u32(name+" type", typ)
	m.fields = append(m.fields, field{name + " offset", len(m.b), 8})
	m.u64(offset)
}

// soundFile has every kind of number a header has.
func soundFile(order binary.AppendByteOrder, version uint32) *marked {
	m := &marked{raw: &raw{b: []byte("GGUF"), v1: version == 1, order: order}}
	m.u32("version", version).length("tensors", 3).length("keys", 5)
	m.str("key 0", gguf.KeyAlignment).u32("key 0 type", uint32(gguf.TypeU32)).u32("alignment", 32)
	m.str("key 1", "list").u32("key 1 type", uint32(gguf.TypeArray)).u32("key 1 elements' type", uint32(gguf.TypeU32)).length("key 1 elements", 2).raw.u32(1).u32(2)
	m.str("key 2", "text").u32("key 2 type", uint32(gguf.TypeString)).str("text", "abc")
	m.str("key 3", "texts").u32("key 3 type", uint32(gguf.TypeArray)).u32("key 3 elements' type", uint32(gguf.TypeString)).length("key 3 elements", 2).str("texts 0", "x").str("texts 1", "y")
	m.str("key 4", "nested").u32("key 4 type", uint32(gguf.TypeArray)).u32("key 4 elements' type", uint32(gguf.TypeArray)).length("key 4 elements", 1).
		u32("key 4 inner type", uint32(gguf.TypeBool)).length("key 4 inner elements", 1).bytes(1)
	m.entry("a", 0, 0, 3, 2)
	m.entry("b", 8, 32, 64)
	m.entry("c", 24, 128, 0, 5)
	m.data(128)
	return m
}

// values are what a field of a width that holds v is set to.
func values(v uint64, width int) []uint64 {
	top := uint64(1)<<(8*width-1) - 1
	all := []uint64{0, 1, v - 1, v + 1, 2 * v, top, top + 1, 2*top + 1}
	if width == 4 {
		for i := range all {
			all[i] = uint64(uint32(all[i]))
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(x uint64) bool { return x == v })
}

func (f field) get(b []byte, order binary.ByteOrder) uint64 {
	if f.width == 4 {
		return uint64(order.Uint32(b[f.at:]))
	}
	return order.Uint64(b[f.at:])
}

func (f field) set(b []byte, order binary.ByteOrder, v uint64) {
	if f.width == 4 {
		order.PutUint32(b[f.at:], uint32(v))
	} else {
		order.PutUint64(b[f.at:], v)
	}
}

// verdict opens a hostile file and says in one line what came of it.
func verdict(t *testing.T, file []byte) string {
	t.Helper()
	made, err := cost(file)
	assert.LessOrEqual(t, made, allowed(len(file)))
	if err == nil {
		return "read"
	}
	var fe *gguf.FormatError
	var cut *gguf.TruncatedError
	var endian *gguf.EndianError
	require.True(t, errors.As(err, &fe) || errors.As(err, &cut) || errors.As(err, &endian), "%T", err)
	assert.NotContains(t, err.Error(), "\n")
	assert.LessOrEqual(t, len(err.Error()), 1500)
	return strings.TrimPrefix(err.Error(), "x: ")
}

// TestTheHostileCorpus sets each number of a header to the edges of what it can
// be, and puts awkward text wherever text goes. What must come of each is in
// testdata/hostile.txt.
func TestTheHostileCorpus(t *testing.T) {
	var out bytes.Buffer
	for _, kind := range []struct {
		name    string
		order   binary.AppendByteOrder
		version uint32
	}{{"v1", binary.LittleEndian, 1}, {"v3", binary.LittleEndian, 3}, {"v3 big-endian", binary.BigEndian, 3}} {
		order := kind.order.(binary.ByteOrder)
		sound := soundFile(kind.order, kind.version)
		require.Equal(t, "read", verdict(t, sound.b))
		for _, f := range sound.fields {
			v := f.get(sound.b, order)
			for _, x := range values(v, f.width) {
				bent := slices.Clone(sound.b)
				f.set(bent, order, x)
				fmt.Fprintf(&out, "%s: %s %d -> %d: %s\n", kind.name, f.name, v, x, verdict(t, bent))
			}
		}
	}
	for _, text := range awkward {
		places := map[string]*raw{
			"key":   newRaw(3, 0, 1).kv(text.s, gguf.TypeU8).bytes(0),
			"value": newRaw(3, 0, 1).kv("k", gguf.TypeString).str(text.s),
			"name":  newRaw(3, 1, 0).entry(text.s, 24, 0, 1).data(1),
		}
		for _, place := range []string{"key", "value", "name"} {
			fmt.Fprintf(&out, "%s: %s: %s\n", text.what, place, verdict(t, places[place].b))
		}
	}
	golden := filepath.Join("testdata", "hostile.txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), out.String())
}

// awkward is text that has fooled readers.
var awkward = []struct{ what, s string }{
	{"empty text", ""},
	{"NUL", "a\x00b"},
	{"newline", "a\nb"},
	{"escape sequence", "\x1b[2J"},
	{"parent folder", "../../etc/passwd"},
	{"text of 65535 bytes", strings.Repeat("a", 65535)},
	{"text of 64 KiB", strings.Repeat("a", 65536)},
	{"not UTF-8", "\xff\xfe"},
	{"overlong UTF-8", "\xc0\x80"},
	{"half a surrogate", "\xed\xa0\x80"},
	{"bidi controls", "\u202egpj.exe\u202c"},
	{"byte order mark", "\ufeffa"},
}

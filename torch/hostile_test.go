package torch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/hostile.txt anew; read the difference before it is kept")

// cost opens a file and returns the bytes that were allocated for it, those freed
// again included.
func cost(b []byte) (made uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = OpenReaderAt(bytes.NewReader(b), int64(len(b)), "x")
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

func verdict(t *testing.T, b []byte) string {
	t.Helper()
	made, err := cost(b)
	assert.LessOrEqual(t, made, allowed(len(b)))
	if err == nil {
		return "read"
	}
	var fe *FormatError
	var global *GlobalError
	require.True(t, errors.As(err, &fe) || errors.As(err, &global) || errors.Is(err, ErrNoTensors), "%T", err)
	assert.NotContains(t, err.Error(), "\n")
	assert.LessOrEqual(t, len(err.Error()), 1500)
	return strings.TrimPrefix(err.Error(), "x: ")
}

// archiveOf makes an archive of stored members without any library, so that any
// number in it can be bent.
func archiveOf(members ...[2]string) []byte {
	le := binary.LittleEndian
	var b, dir []byte
	for _, m := range members {
		name, data := m[0], m[1]
		at := len(b)
		common := le.AppendUint32(nil, 0) // version, flags
		common = le.AppendUint16(common, methodStored)
		common = le.AppendUint32(common, 0) // time and date
		common = le.AppendUint32(common, crc32.ChecksumIEEE([]byte(data)))
		common = le.AppendUint32(common, uint32(len(data)))
		common = le.AppendUint32(common, uint32(len(data)))
		common = le.AppendUint16(common, uint16(len(name)))
		common = le.AppendUint16(common, 0) // extra
		b = append(append(append(append(b, zipLocal...), common...), name...), data...)
		dir = append(append(append(dir, zipCentral...), 0, 0), common...)
		dir = append(dir, make([]byte, 10)...) // comment, disk, attributes
		dir = append(le.AppendUint32(dir, uint32(at)), name...)
	}
	start := len(b)
	b = append(append(b, dir...), zipEnd...)
	b = le.AppendUint32(b, 0) // disks
	b = le.AppendUint16(b, uint16(len(members)))
	b = le.AppendUint16(b, uint16(len(members)))
	b = le.AppendUint32(b, uint32(len(dir)))
	b = le.AppendUint32(b, uint32(start))
	return le.AppendUint16(b, 0)
}

// aState is the pickle of {"a": a tensor of floats over storage "0"}.
func aState(elements, offset, shape, stride string) string {
	return "\x80\x02}U\x01actorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpu" + elements + "tQ" +
		offset + shape + stride + "\x89NtRs."
}

// zipFields are the numbers of one member, in its local header and its entry of
// the directory, and those of the end record.
func zipFields(b []byte) (fields []zipField) {
	local := 0
	central := bytes.Index(b, []byte(zipCentral))
	end := bytes.LastIndex(b, []byte(zipEnd))
	for _, f := range []zipField{{"flags", 6, 2}, {"method", 8, 2}, {"crc", 14, 4}, {"compressed size", 18, 4}, {"size", 22, 4}, {"name length", 26, 2}, {"extra length", 28, 2}} {
		fields = append(fields, zipField{"local " + f.name, local + f.at, f.width}, zipField{"central " + f.name, central + f.at + 2, f.width})
	}
	for _, f := range []zipField{{"central comment length", 32, 2}, {"central offset", 42, 4}} {
		fields = append(fields, zipField{f.name, central + f.at, f.width})
	}
	for _, f := range []zipField{{"disk", 4, 2}, {"directory's disk", 6, 2}, {"members on disk", 8, 2}, {"members", 10, 2}, {"directory size", 12, 4}, {"directory offset", 16, 4}, {"comment length", 20, 2}} {
		fields = append(fields, zipField{"end " + f.name, end + f.at, f.width})
	}
	return fields
}

type zipField struct {
	name      string
	at, width int
}

func (f zipField) get(b []byte) uint64 {
	var wide [8]byte
	copy(wide[:], b[f.at:f.at+f.width])
	return binary.LittleEndian.Uint64(wide[:])
}

func (f zipField) set(b []byte, v uint64) {
	copy(b[f.at:f.at+f.width], binary.LittleEndian.AppendUint64(nil, v))
}

func edges(v uint64, width int) []uint64 {
	top := uint64(1)<<(8*width-1) - 1
	all := []uint64{0, 1, v - 1, v + 1, 2 * v, top, top + 1, 2 * top, 2*top + 1}
	for i := range all {
		if width < 8 {
			all[i] &= 2*top + 1
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(x uint64) bool { return x == v })
}

// TestTheHostileCorpus sets each number of an archive, of the old form and of a
// tensor to the edges of what it can be, and puts awkward text wherever text goes.
// What must come of each is in testdata/hostile.txt.
func TestTheHostileCorpus(t *testing.T) {
	var out bytes.Buffer
	shape, stride := "(K\x02K\x02t", "(K\x02K\x01t"
	data := strings.Repeat("d", 24)
	pickle := aState("K\x06", "K\x01", shape, stride)
	members := func(pickle string) [][2]string { return [][2]string{{"m/data.pkl", pickle}, {"m/data/0", data}} }
	good := archiveOf(members(pickle)...)
	require.Equal(t, "read", verdict(t, good))
	for _, f := range zipFields(good) {
		v := f.get(good)
		for _, x := range edges(v, f.width) {
			bent := slices.Clone(good)
			f.set(bent, x)
			fmt.Fprintf(&out, "zip %s %d -> %d: %s\n", f.name, v, x, verdict(t, bent))
		}
	}
	numbers := map[string]string{"0": "K\x00", "1": "K\x01", "5": "K\x05", "6": "K\x06", "7": "K\x07", "-1": "J\xff\xff\xff\xff", "2^31": "\x8a\x05\x00\x00\x00\x80\x00",
		"2^62": "\x8a\x08" + u64(1<<62), "2^63-1": "\x8a\x08" + u64(1<<63-1), "-2^63": "\x8a\x08" + u64(1<<63), "2^64": "\x8a\x09" + u64(0) + "\x01", "2^100": "\x8a\x0e" + strings.Repeat("\x00", 12) + "\x10\x00",
		"None": "N", "1.5": "G\x3f\xf8\x00\x00\x00\x00\x00\x00", "True": "\x88", "text": "U\x015"}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range numbers {
			if !yield(name) {
				return
			}
		}
	}) {
		n := numbers[name]
		for _, c := range []struct{ what, pickle string }{
			{"elements", aState(n, "K\x01", shape, stride)},
			{"offset", aState("K\x06", n, shape, stride)},
			{"axis", aState("K\x06", "K\x01", "("+n+"K\x02t", stride)},
			{"stride", aState("K\x06", "K\x01", shape, "("+n+"K\x01t")},
			{"one axis", aState("K\x06", "K\x01", n, stride)},
		} {
			fmt.Fprintf(&out, "tensor %s -> %s: %s\n", c.what, name, verdict(t, archiveOf(members(c.pickle)...)))
		}
	}
	old := oldForm(pickle, "]U\x010a.", 6, data)
	require.Equal(t, "read", verdict(t, old))
	for _, x := range edges(6, 8) {
		fmt.Fprintf(&out, "old form elements 6 -> %d: %s\n", x, verdict(t, oldForm(pickle, "]U\x010a.", x, data)))
	}
	for _, c := range []struct{ what, keys string }{{"none", "]."}, {"another", "]U\x011a."}, {"twice", "](U\x010U\x010e."}, {"no list", "N."}, {"a tuple", "U\x010\x85."}, {"cut", "]"}} {
		fmt.Fprintf(&out, "old form keys -> %s: %s\n", c.what, verdict(t, oldForm(pickle, c.keys, 6, data)))
	}
	fmt.Fprintf(&out, "old form data 24 -> 23: %s\n", verdict(t, old[:len(old)-1]))
	fmt.Fprintf(&out, "old form data 24 -> 0: %s\n", verdict(t, old[:len(old)-24]))
	fmt.Fprintf(&out, "old form big-endian: %s\n", verdict(t, bytes.Replace(old, []byte("little_endian\x88"), []byte("little_endian\x89"), 1)))
	fmt.Fprintf(&out, "old form version 1002: %s\n", verdict(t, bytes.Replace(old, []byte("M\xe9\x03"), []byte("M\xea\x03"), 1)))
	for _, text := range awkward {
		name := "X" + u32(uint32(len(text.s))) + text.s
		fmt.Fprintf(&out, "%s: tensor name: %s\n", text.what, verdict(t, archiveOf(members(strings.Replace(pickle, "U\x01a", name, 1))...)))
		fmt.Fprintf(&out, "%s: dict name: %s\n", text.what, verdict(t, archiveOf(members("\x80\x02}"+name+pickle[2:len(pickle)-1]+"s.")...)))
		if len(text.s) > 60000 {
			continue
		}
		fmt.Fprintf(&out, "%s: storage key: %s\n", text.what, verdict(t, archiveOf([2]string{"m/data.pkl", strings.Replace(pickle, "U\x010", name, 1)}, [2]string{"m/data/" + text.s, data})))
		fmt.Fprintf(&out, "%s: folder: %s\n", text.what, verdict(t, archiveOf([2]string{text.s + "/data.pkl", pickle}, [2]string{text.s + "/data/0", data})))
		if !strings.Contains(text.s, "\n") {
			fmt.Fprintf(&out, "%s: Python name: %s\n", text.what, verdict(t, archiveOf(members("c"+text.s+"\n"+text.s+"\n.")...)))
		}
	}
	golden := filepath.Join("testdata", "hostile.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), out.String())
}

// oldForm is a checkpoint in the form before archives, with one storage.
func oldForm(pickle, keys string, elements uint64, data string) []byte {
	return []byte("\x80\x02\x8a\x0a" + string(legacyMagic) + "." + "\x80\x02M\xe9\x03." + "\x80\x02}U\x0dlittle_endian\x88s." + pickle + "\x80\x02" + keys + u64(elements) + data)
}

// awkward is text that has fooled readers.
var awkward = []struct{ what, s string }{
	{"empty text", ""},
	{"NUL", "a\x00b"},
	{"newline", "a\nb"},
	{"escape sequence", "\x1b[2J"},
	{"parent folder", "../../etc/passwd"},
	{"absolute path", "/etc/passwd"},
	{"text of 65535 bytes", strings.Repeat("a", 65535)},
	{"text of 64 KiB", strings.Repeat("a", 65536)},
	{"not UTF-8", "\xff\xfe"},
	{"bidi controls", "\u202egpj.exe\u202c"},
}

// archive64 makes the archive of archiveOf with all its numbers in zip64 records.
func archive64(members ...[2]string) []byte {
	le := binary.LittleEndian
	short := archiveOf(members...)
	start := bytes.Index(short, []byte(zipCentral))
	b, dir := short[:start], []byte(nil)
	for entry := short[start:bytes.LastIndex(short, []byte(zipEnd))]; len(entry) > 0; {
		n := zipCentralBytes + int(le.Uint16(entry[28:]))
		wide := slices.Clone(entry[:n])
		size, local := le.Uint32(wide[24:]), le.Uint32(wide[42:])
		le.PutUint32(wide[20:], math.MaxUint32)
		le.PutUint32(wide[24:], math.MaxUint32)
		le.PutUint32(wide[42:], math.MaxUint32)
		le.PutUint16(wide[30:], 33)
		wide = append(wide, 9, 9, 1, 0, 0, 1, 0, 24, 0) // a field of no meaning before it
		wide = le.AppendUint64(le.AppendUint64(le.AppendUint64(wide, uint64(size)), uint64(size)), uint64(local))
		dir, entry = append(dir, wide...), entry[n:]
	}
	end := start + len(dir)
	b = append(append(slices.Clone(b), dir...), zipEnd64...)
	b = le.AppendUint64(b, 44)
	b = append(b, make([]byte, 12)...)
	for _, n := range []int{len(members), len(members), len(dir), start} {
		b = le.AppendUint64(b, uint64(n))
	}
	b = append(le.AppendUint32(append(b, zipLocator64...), 0), le.AppendUint64(nil, uint64(end))...)
	b = append(le.AppendUint32(b, 1), zipEnd...)
	return append(append(b, bytes.Repeat([]byte{0xff}, 16)...), 0, 0)
}

func TestZip64(t *testing.T) {
	pickle := aState("K\x06", "K\x01", "(K\x02K\x02t", "(K\x02K\x01t")
	b := archive64([2]string{"m/data.pkl", pickle}, [2]string{"m/data/0", strings.Repeat("d", 24)})
	require.Equal(t, "read", verdict(t, b))
	locator := bytes.LastIndex(b, []byte(zipLocator64))
	for _, at := range []int{locator, locator + 8, locator - 8, locator - 16, locator - 24, locator - 32, bytes.Index(b, []byte{1, 0, 24, 0}) + 4} {
		for _, v := range []uint64{0, 1 << 20, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
			bent := slices.Clone(b)
			binary.LittleEndian.PutUint64(bent[at:], v)
			assert.NotEqual(t, "read", verdict(t, bent), "%d at %d", v, at)
		}
	}
}

// TestMemoryIsBoundedByTheFile opens archives that are packed with as much of one
// thing as they can hold.
func TestMemoryIsBoundedByTheFile(t *testing.T) {
	var many, tensors strings.Builder
	var members [][2]string
	for i := range 65534 {
		members = append(members, [2]string{string([]byte{byte(i), byte(i >> 8)}), ""})
	}
	tensors.WriteString("}(")
	for i := range 1 << 16 {
		many.WriteString("U\x04" + u32(uint32(i)) + "K\x01")
		fmt.Fprintf(&tensors, "U\x05%05dh\x00", i)
	}
	one := aState("K\x06", "K\x01", "(K\x02K\x02t", "(K\x02K\x01t")
	one = one[3+4 : len(one)-2] // from the global to the REDUCE
	for _, c := range []struct {
		name string
		file []byte
	}{
		{"members", archiveOf(members...)},
		{"a dict of ints", archiveOf([2]string{"data.pkl", "}(" + strings.ReplaceAll(many.String(), "\n", " ") + "u."})},
		{"one tensor by many names", archiveOf([2]string{"data.pkl", one[:0] + "c" + strings.TrimPrefix(one, "c") + "q\x000" + tensors.String() + "u."}, [2]string{"data/0", strings.Repeat("d", 24)})},
		{"long names of dicts in dicts", archiveOf([2]string{"data.pkl", strings.Repeat("}X"+u32(60000)+strings.Repeat("k", 60000), 50) + "N" + strings.Repeat("s", 50) + "."})},
	} {
		t.Run(c.name, func(t *testing.T) {
			made, err := cost(c.file)
			t.Logf("%d bytes cost %d, %.2f of what is allowed; %v", len(c.file), made, float64(made)/float64(allowed(len(c.file))), err)
			assert.LessOrEqual(t, made, allowed(len(c.file)))
		})
	}
}

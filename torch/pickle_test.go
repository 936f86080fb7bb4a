package torch

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// run runs a pickle without its STOP.
func run(pickle string) (any, error) {
	b := []byte(pickle + ".")
	return newMachine(newStream(bytes.NewReader(b), "x", 0, int64(len(b))), int64(len(b))).run()
}

func u32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
func u64(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }

func TestValuesOfEveryOpcode(t *testing.T) {
	for _, c := range []struct {
		pickle string
		want   any
	}{
		{"\x80\x02N", nil}, {"\x80\x04\x95" + u64(1) + "\x88", true}, {"\x89", false},
		{"K\xff", int64(255)}, {"M\xff\xff", int64(65535)}, {"J\xff\xff\xff\xff", int64(-1)},
		{"I42\n", int64(42)}, {"I01\n", true}, {"I00\n", false}, {"L-7L\n", int64(-7)},
		{"\x8a\x00", int64(0)}, {"\x8a\x01\xff", int64(-1)}, {"\x8a\x02\xff\x00", int64(255)}, {"\x8a\x08" + u64(1<<63), int64(math.MinInt64)},
		{"\x8b" + u32(1) + "\x07", int64(7)}, {"\x8a\x09" + strings.Repeat("\x01", 9), []byte(strings.Repeat("\x01", 9))},
		{"F1.5\n", 1.5}, {"G\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5},
		{"S'ab'\n", "ab"}, {"Vab\n", "ab"}, {"T" + u32(2) + "ab", "ab"}, {"U\x02ab", "ab"}, {"U\x01\xff", []byte{0xff}},
		{"X" + u32(2) + "é", "é"}, {"\x8c\x02ab", "ab"}, {"\x8d" + u64(2) + "ab", "ab"},
		{"B" + u32(1) + "\xff", []byte{0xff}}, {"C\x01\xff", []byte{0xff}}, {"\x8e" + u64(1) + "\xff", []byte{0xff}}, {"\x96" + u64(1) + "\xff", []byte{0xff}},
		{")", &tuple{[]any{}}}, {"K\x01\x85", &tuple{[]any{int64(1)}}}, {"K\x01K\x02\x86", &tuple{[]any{int64(1), int64(2)}}},
		{"NNN\x87", &tuple{[]any{nil, nil, nil}}}, {"(K\x01t", &tuple{[]any{int64(1)}}},
		{"]", &list{}}, {"](K\x01e", &list{[]any{int64(1)}}}, {"]K\x01a", &list{[]any{int64(1)}}}, {"(K\x01l", &list{[]any{int64(1)}}},
		{"\x8f(K\x01\x90", &list{[]any{int64(1)}}}, {"(K\x01\x91", &list{[]any{int64(1)}}},
		{"}U\x01aK\x01s", &dict{[]any{"a"}, []any{int64(1)}, map[string]int{"a": 0}}},
		{"(K\x07K\x01d", &dict{[]any{int64(7)}, []any{int64(1)}, nil}},
		{"}(U\x01aK\x01U\x01aK\x02u", &dict{[]any{"a"}, []any{int64(2)}, map[string]int{"a": 0}}},
		{"K\x01q\x000h\x00", int64(1)}, {"K\x01r" + u32(1<<31) + "0j" + u32(1<<31), int64(1)}, {"K\x01p5\n0g5\n", int64(1)}, {"K\x01\x940h\x00", int64(1)},
		{"K\x01(NN1", int64(1)}, {"K\x01(0", int64(1)}, {"K\x0120", int64(1)},
		{"ccollections\nOrderedDict\n)R", &dict{}}, {"\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R", &dict{}},
		{"ccollections\nOrderedDict\n]U\x01aK\x01\x86a\x85R}b", &dict{[]any{"a"}, []any{int64(1)}, map[string]int{"a": 0}}},
		{"ccollections\ndefaultdict\ncbuiltins\nset\n\x85R", &dict{}},
		{"cx\nY\n)\x81", &opaque{"x.Y", []any{}}}, {"cx\nY\n)}\x92", &opaque{"x.Y", []any{&dict{}}}}, {"(ix\nY\n", &opaque{"x.Y", nil}},
		{"(cx\nY\nK\x01o", &opaque{"x.Y", []any{int64(1)}}}, {"cx\nY\n)\x81Nb", &opaque{"x.Y", []any{nil}}},
	} {
		got, err := run(c.pickle)
		require.NoError(t, err, "%q", c.pickle)
		assert.Equal(t, c.want, got, "%q", c.pickle)
	}
}

func TestMalformedPicklesAreRefused(t *testing.T) {
	for _, pickle := range []string{"", "0", "(", "N(", "1", "t", "R", "NR", "N)R", "cx\nY\nNR", "K", "Jabc", "X" + u32(1<<31) + "ab", "\x8d" + u64(1<<63) + "ab", "\x8d" + u64(1<<62) + "a",
		"U\x05ab", "h\x00", "g1\n", "gx\n", "q\x00", "S'a\n", "Sab\n", "Va", "Fx\n", "X" + u32(1) + "\xff", "\x80\x06N", "\x82\x01", "\x97", "\xff", "Q", "NQ", ")Q", "P1\n",
		"}(K\x01u", "N(NNu", "NNa", "}Nb.", "NNb", "(o", "c", "cx\n", "NN\x93", "K\x01K\x02\x93", "ccollections\nOrderedDict\n]K\x01a\x85R"} {
		_, err := run(pickle)
		if pickle == "}Nb." {
			assert.NoError(t, err, "a dict may have a state")
			continue
		}
		var fe *FormatError
		assert.ErrorAs(t, err, &fe, "%q", pickle)
	}
}

func TestHarmfulNamesAreRefusedAnywhere(t *testing.T) {
	for _, c := range []struct{ pickle, name string }{
		{"cos\nsystem\nU\x02id\x85R", "os.system"},
		{"cposix\nsystem\n", "posix.system"},
		{"cbuiltins\neval\n", "builtins.eval"},
		{"c__builtin__\nexec\n", "__builtin__.exec"},
		{"cbuiltins\n__import__\n", "builtins.__import__"},
		{"\x8c\x0asubprocess\x8c\x05Popen\x93", "subprocess.Popen"},
		{"(isys\nexit\n", "sys.exit"},
		{"cos.path\njoin\n", "os.path.join"},
		{"ctorch.hub\nload\n", "torch.hub.load"},
		{"}U\x01a(iimportlib\nimport_module\ns", "importlib.import_module"},
	} {
		_, err := run(c.pickle)
		var global *GlobalError
		require.ErrorAs(t, err, &global, "%q", c.pickle)
		assert.Equal(t, GlobalError{Path: "x", Name: c.name, Harm: true}, *global)
		assert.ErrorContains(t, err, `"`+c.name+`", which could run code; nothing was run`)
	}
}

// allowed is how much memory a hostile file may cost, garbage included.
func allowed(size int) uint64 { return 2*uint64(size) + 32<<20 }

// TestBombsAreBounded runs pickles that make much of little.
func TestBombsAreBounded(t *testing.T) {
	const size = 4 << 20
	doubling := "ccollections\nOrderedDict\nq\x010}" + "(" + "U\x01aK\x01" + "uq\x00"
	for i := range 200 {
		doubling += "h\x01h\x00\x85Rq\x00(U\x03" + string([]byte{byte('a' + i%26), byte('a' + i/26), 'x'}) + "h\x00u"
	}
	for name, pickle := range map[string]string{
		"empty dicts":       strings.Repeat("}", size),
		"empty lists":       strings.Repeat("]", size),
		"marks":             strings.Repeat("(", size),
		"ones":              strings.Repeat("N", size),
		"memo":              "N" + strings.Repeat("\x94", size),
		"memo of places":    "N" + memoBomb(size/5),
		"tuples of tuples":  "N" + strings.Repeat("\x85", size),
		"doubled tuples":    "N" + strings.Repeat("q\x00h\x00\x86", size/5),
		"copied dicts":      doubling,
		"copied lists":      "cbuiltins\nlist\nq\x01]q\x00" + strings.Repeat("h\x01h\x00\x85Rq\x00h\x00a", 2000),
		"calls":             "cx\nY\n" + strings.Repeat(")R", size/2),
		"dicts set again":   "}" + strings.Repeat("NNs", size/3),
		"strings":           strings.Repeat("U\x00", size/2),
		"states":            "cx\nY\n)R" + strings.Repeat("Nb", size/2),
		"names":             strings.Repeat("cx\ny\n", size/5),
		"storages":          strings.Repeat("(U\x07storagectorch\nByteStorage\nU\x010NK\x01tQ", size/40),
		"nested subclasses": "ctorch._tensor\n_rebuild_from_type_v2\nq\x00N)" + strings.Repeat("h\x00N", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, err := run(pickle)
			runtime.ReadMemStats(&after)
			made := after.TotalAlloc - before.TotalAlloc
			t.Logf("made %d bytes, %.2f of what is allowed; %v", made, float64(made)/float64(allowed(len(pickle))), err)
			assert.LessOrEqual(t, made, allowed(len(pickle)))
		})
	}
}

func memoBomb(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("r" + u32(uint32(i)))
	}
	return b.String()
}

// storageID is the persistent id of a storage of n floats.
func storageID(n byte) string {
	return "(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK" + string(rune(n)) + "tQ"
}

func TestStoragesAndTensors(t *testing.T) {
	rebuild := "ctorch._utils\n_rebuild_tensor_v2\n"
	good := rebuild + "(" + storageID(6) + "K\x01(K\x02K\x02t(K\x02K\x01t\x89Nt"
	v, err := run(good + "R")
	require.NoError(t, err)
	x := v.(*view)
	assert.Equal(t, []any{int64(24), int64(1), []int64{2, 2}, []int64{2, 1}}, []any{x.storage.bytes, x.offset, x.shape, x.strides})
	for name, pickle := range map[string]string{
		"two sizes of one storage": "(" + storageID(6) + storageID(7) + "t",
		"no tuple":                 "U\x07storageQ",
		"other id":                 "(U\x05otherNNNNtQ",
		"short id":                 "(U\x07storagectorch\nFloatStorage\ntQ",
		"no class":                 "(U\x07storageNU\x010NK\x01tQ",
		"negative size":            "(U\x07storagectorch\nFloatStorage\nU\x010NJ\xff\xff\xff\xfftQ",
		"overflowing size":         "(U\x07storagectorch\nFloatStorage\nU\x010N\x8a\x08" + u64(1<<62) + "tQ",
		"view outside":             "(U\x07storagectorch\nFloatStorage\nU\x010NK\x04(NK\x02K\x03ttQ",
		"no storage":               rebuild + "(NK\x00))t" + "R",
		"offset no int":            rebuild + "(" + storageID(6) + "N))tR",
		"size no tuple":            rebuild + "(" + storageID(6) + "K\x00N)tR",
		"size of strings":          rebuild + "(" + storageID(6) + "K\x00U\x01a\x85K\x01\x85tR",
		"size and stride differ":   rebuild + "(" + storageID(6) + "K\x00K\x01\x85)tR",
		"65 axes":                  rebuild + "(" + storageID(6) + "K\x00(" + strings.Repeat("K\x01", 65) + "t(" + strings.Repeat("K\x01", 65) + "ttR",
		"too few arguments":        rebuild + "(" + storageID(6) + "tR",
		"v3 without dtype":         "ctorch._utils\n_rebuild_tensor_v3\n(" + storageID(6) + "K\x00))\x89NNtR",
	} {
		_, err := run(pickle)
		var fe *FormatError
		assert.ErrorAs(t, err, &fe, name)
	}
	v, err = run("(U\x07storagectorch\nFloatStorage\nU\x010NK\x04(NK\x01K\x03ttQ")
	require.NoError(t, err)
	assert.Equal(t, int64(4), v.(*storage).skip)
	assert.Equal(t, int64(12), v.(*storage).bytes)
	v, err = run("ctorch._utils\n_rebuild_parameter\n" + good[:len(good)-1] + "tR\x88N\x87R")
	require.NoError(t, err)
	assert.IsType(t, &view{}, v)
	v, err = run("ctorch._tensor\n_rebuild_from_type_v2\n(" + rebuild + "cx\nSub\n" + good[len(rebuild):] + "}tR")
	require.NoError(t, err)
	assert.IsType(t, &view{}, v)
}

// TestWalksAreBounded walks objects that are small but have endless ways through.
func TestWalksAreBounded(t *testing.T) {
	self := &dict{}
	self.set("a", self)
	self.set("b", self)
	wide := &dict{}
	for range 40 {
		next := &dict{}
		next.set("a", wide)
		next.set("b", wide)
		wide = next
	}
	long := &dict{}
	for i := range 2000 {
		next := &dict{}
		next.set(strings.Repeat("n", 60000), int64(i))
		long.set(strings.Repeat("m", i), next)
	}
	deepOpaque := any(nil)
	for range 100_000 {
		deepOpaque = &opaque{"x.Y", []any{deepOpaque, deepOpaque}}
	}
	many := &dict{}
	for i := range 10_000 {
		many.set(strings.Repeat("k", i%97)+u32(uint32(i)), deepOpaque)
	}
	for name, root := range map[string]*dict{"itself": self, "shared": wide, "long names": long, "opaque": many} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(newStream(bytes.NewReader(nil), "x", 0, 0), 0)
			w := &walker{path: "x", machine: m, file: &File{}, names: map[string]struct{}{}, clean: map[any]bool{}}
			assert.Error(t, w.walk(root))
		})
	}
}

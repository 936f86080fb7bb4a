package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
)

var update = flag.Bool("update", false, "write testdata/hostile.txt anew; read the difference before it is kept")

// sound is a header with every kind of value, those that the corpus bends between
// angle brackets.
const sound = `{"__metadata__":<metadata={"k":"v"}>,` +
	`"a":{"dtype":<a dtype="F32">,"shape":<a shape=[2,3]>,"data_offsets":<a offsets=[0,24]>},` +
	`"b":{"dtype":"U8","shape":[<b axis=8>],"data_offsets":[<b begin=24>,<b end=32>]},` +
	`"c":<c={"dtype":"F4","shape":[0,5],"data_offsets":[32,32]}>}`

// render puts values between the brackets: the sound one, or other for one place.
func render(place, other string) (header string, places []string) {
	parts := strings.Split(sound, "<")
	header = parts[0]
	for _, part := range parts[1:] {
		name, rest, _ := strings.Cut(part, "=")
		value, tail, _ := strings.Cut(rest, ">")
		if name == place {
			value = other
		}
		places = append(places, name)
		header += value + tail
	}
	return header, places
}

// bent are values for any place.
var bent = []string{"0", "1", "7", "9", "23", "25", "31", "33", "64", "-1", "-0", "9223372036854775807", "9223372036854775808", "18446744073709551615",
	"18446744073709551616", "1" + strings.Repeat("0", 400), "8.0", "8e0", "08", "NaN", "Infinity", "null", "true", "false", `""`, `"8"`, `"F32"`, `"f32"`, `"F32 "`, `"\u0046\u0033\u0032"`,
	`"F16"`, `"F64"`, `"F4"`, `"BOOL"`, `"C64"`, `"\ud800"`, "'F32'", "[]", "[0]", "[8]", "[2,3]", "[3,2]", "[6]", "[2,3,1]", "[2,3,0]", "[24,0]", "[0,23]", "[0,25]", "[1,25]", "[0,24,24]", "[-1,-6]",
	"[4294967296,4294967296]", "[0,18446744073709551615]", "[[2,3]]", "[2,3", "{}", `{"k":1}`, `{"k":"v","k":"w"}`, `{"k":{}}`, `{"dtype":"F4"}`, "",
	strings.Repeat("[", 129) + strings.Repeat("]", 129)}

func verdict(t *testing.T, b []byte) string {
	t.Helper()
	made, err := cost(openBytes(b))
	assert.LessOrEqual(t, made, allowed(len(b)))
	if err == nil {
		return "read"
	}
	var fe *safetensors.FormatError
	var cut *safetensors.TruncatedError
	require.True(t, errors.As(err, &fe) || errors.As(err, &cut), "%T", err)
	assert.NotContains(t, err.Error(), "\n")
	assert.LessOrEqual(t, len(err.Error()), 1500)
	return strings.TrimPrefix(err.Error(), "x: ")
}

// awkward is text that has fooled readers.
var awkward = []struct{ what, s string }{
	{"empty text", ""},
	{"NUL", "a\x00b"},
	{"newline", "a\nb"},
	{"escape sequence", "\x1b[2J"},
	{"parent folder", "../../etc/passwd"},
	{"the name of the metadata", "__metadata__"},
	{"text of 65535 bytes", strings.Repeat("a", 65535)},
	{"text of 64 KiB", strings.Repeat("a", 65536)},
	{"bidi controls", "\u202egpj.exe\u202c"},
	{"byte order mark", "\ufeffa"},
}

// TestTheHostileCorpus sets each value of a header to what it must not be, and
// puts awkward text wherever text goes. What must come of each is in
// testdata/hostile.txt.
func TestTheHostileCorpus(t *testing.T) {
	var out bytes.Buffer
	header, places := render("", "")
	good := file(header, 32)
	require.Equal(t, "read", verdict(t, good))
	n := uint64(len(header))
	for _, length := range []uint64{0, 1, n - 1, n + 1, n + 31, n + 32, n + 33, 2 * n, 100_000_000, 100_000_001, 1<<63 - 1, 1 << 63, 1<<64 - 8, 1<<64 - 1} {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b, length)
		fmt.Fprintf(&out, "header length %d -> %d: %s\n", n, length, verdict(t, b))
	}
	for _, size := range []int{0, 1, 31, 33, 64} {
		fmt.Fprintf(&out, "data 32 -> %d: %s\n", size, verdict(t, file(header, size)))
	}
	for _, place := range places {
		for _, value := range bent {
			header, _ := render(place, value)
			shown := value
			if len(shown) > 80 {
				shown = fmt.Sprintf("%s… (%d bytes)", shown[:8], len(shown))
			}
			fmt.Fprintf(&out, "%s -> %s: %s\n", place, shown, verdict(t, file(header, 32)))
		}
	}
	for _, text := range awkward {
		quoted, err := json.Marshal(text.s)
		require.NoError(t, err)
		for _, c := range []struct{ place, header string }{
			{"name", `{%s:{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`},
			{"metadata key", `{"__metadata__":{%s:""},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`},
			{"metadata value", `{"__metadata__":{"k":%s},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`},
		} {
			fmt.Fprintf(&out, "%s: %s: %s\n", text.what, c.place, verdict(t, file(fmt.Sprintf(c.header, quoted), 1)))
		}
	}
	for _, c := range []struct{ what, s string }{{"not UTF-8", "\xff\xfe"}, {"overlong UTF-8", "\xc0\x80"}, {"half a surrogate", "\xed\xa0\x80"}} {
		fmt.Fprintf(&out, "%s: name: %s\n", c.what, verdict(t, file(`{"`+c.s+`":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1)))
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

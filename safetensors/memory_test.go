package safetensors_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
)

// allowed is how much memory a hostile file may cost, garbage included.
func allowed(size int) uint64 { return 2*uint64(size) + 32<<20 }

// cost returns the bytes that were allocated while open ran, those freed again
// included.
func cost(open func() error) (made uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = open()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

func openBytes(b []byte) func() error {
	return func() error {
		_, err := safetensors.OpenReaderAt(bytes.NewReader(b), int64(len(b)), "x")
		return err
	}
}

// list joins n items with commas.
func list(n int, item func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item(i))
	}
	return b.String()
}

func short(i int) string {
	return string([]byte{byte(i%26 + 'a'), byte(i/26%26 + 'a'), byte(i/676%26 + 'a'), byte(i/17576 + 'a')})
}

// TestMemoryIsBoundedByTheFile opens files that are packed with as much of one
// thing as they can hold.
func TestMemoryIsBoundedByTheFile(t *testing.T) {
	tensors := func(n int, shape string) string {
		return "{" + list(n, func(i int) string {
			return `"` + short(i) + `":{"dtype":"U8","shape":[` + shape + `],"data_offsets":[0,0]}`
		}) + "}"
	}
	for _, c := range []struct {
		name, header string
		fails        bool
	}{
		{"tensors", tensors(1<<17, "0"), false},
		{"one tensor too many", tensors(1<<17+1, "0"), true},
		{"tensors of four axes", tensors(1<<17, "0,1,1,1"), false},
		{"tensors of 64 axes", tensors(1<<14, strings.Repeat("0,", 63)+"0"), false},
		{"more axes than there may be", tensors(1<<15, strings.Repeat("0,", 63)+"0"), true},
		{"metadata", `{"__metadata__":{` + list(1<<16, func(i int) string { return `"` + short(i) + `":""` }) + "}}", false},
		{"escapes", `{"__metadata__":{"a":"` + strings.Repeat(`\n`, 4<<20) + `"}}`, false},
		{"escapes of three bytes", `{"__metadata__":{"a":"` + strings.Repeat(`\u2028`, 4<<20) + `"}}`, false},
		{"a field nobody knows", `{"a":{"x":[` + list(1<<21, func(int) string { return "{}" }) + `],"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, false},
		{"strings nobody wants", `{"a":{"x":[` + list(1<<21, func(int) string { return `"abcdefghi"` }) + `],"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, false},
		{"keys nobody wants", `{"a":{` + list(1<<20, func(int) string { return `"abcdefghi":0` }) + `}}`, true},
		{"a long number", `{"a":{"dtype":"U8","shape":[` + strings.Repeat("9", 16<<20) + `],"data_offsets":[0,0]}}`, true},
		{"a long dtype", `{"a":{"dtype":"` + strings.Repeat("9", 16<<20) + `","shape":[0],"data_offsets":[0,0]}}`, true},
		{"white space", "{" + strings.Repeat(" ", 32<<20) + "}", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := file(c.header, 0)
			made, err := cost(openBytes(b))
			assert.Equal(t, c.fails, err != nil, "%v", err)
			t.Logf("%d bytes cost %d, %.2f of what is allowed", len(b), made, float64(made)/float64(allowed(len(b))))
			assert.LessOrEqual(t, made, allowed(len(b)))
			if err != nil {
				assert.Less(t, len(err.Error()), 1000)
			}
		})
	}
}

func TestMemoryForAnIndexIsBoundedByTheFile(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"tensors of one shard", `{"weight_map":{` + list(1<<18, func(i int) string { return `"` + short(i) + `":"s"` }) + "}}"},
		{"one tensor too many", `{"weight_map":{` + list(1<<18+1, func(i int) string { return `"` + short(i) + `":"s"` }) + "}}"},
		{"shards", `{"weight_map":{` + list(1<<14, func(i int) string { return fmt.Sprintf("%q:%q", short(i), short(i)) }) + "}}"},
		{"metadata", `{"metadata":[` + list(1<<21, func(int) string { return "1" }) + "]}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.safetensors.index.json")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			made, err := cost(func() error { _, err := safetensors.OpenIndex(path); return err })
			assert.Error(t, err)
			t.Logf("%d bytes cost %d, %.2f of what is allowed", len(c.text), made, float64(made)/float64(allowed(len(c.text))))
			assert.LessOrEqual(t, made, allowed(len(c.text)))
			assert.Less(t, len(err.Error()), 3000)
		})
	}
}

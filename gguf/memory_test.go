package gguf_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sdtool/sdtool/gguf"
)

// allowed is how much memory a hostile file may cost, garbage included.
func allowed(size int) uint64 { return 2*uint64(size) + 32<<20 }

// cost opens a file and returns the bytes that were allocated for it, those freed
// again included.
func cost(file []byte) (made uint64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = gguf.OpenReaderAt(bytes.NewReader(file), int64(len(file)), "x")
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

// TestMemoryIsBoundedByTheFile opens files that are packed with as much of one
// thing as they can hold.
func TestMemoryIsBoundedByTheFile(t *testing.T) {
	repeat := func(n int, r *raw, item func(i int)) *raw {
		for i := range n {
			item(i)
		}
		return r
	}
	short := func(i int) string {
		return string([]byte{byte(i%26 + 'a'), byte(i/26%26 + 'a'), byte(i/676%26 + 'a'), byte(i/17576 + 'a')})
	}
	for version := uint32(1); version <= 3; version += 2 {
		for _, c := range []struct {
			name string
			n    int
			file func(n int) *raw
		}{
			{"tensors", 1 << 17, func(n int) *raw {
				r := newRaw(version, uint64(n), 0)
				return repeat(n, r, func(i int) { r.entry(short(i), 24, 0, 0) }).data(0)
			}},
			{"tensors of eight axes", 1 << 17, func(n int) *raw {
				r := newRaw(version, uint64(n), 0)
				return repeat(n, r, func(i int) { r.entry(short(i), 24, 0, 0, 1, 1, 1, 1, 1, 1, 1) }).data(0)
			}},
			{"keys", 1 << 16, func(n int) *raw {
				r := newRaw(version, 0, uint64(n))
				return repeat(n, r, func(i int) { r.kv(short(i), gguf.TypeU32).u32(uint32(i)) })
			}},
			{"keys of empty arrays", 1 << 16, func(n int) *raw {
				r := newRaw(version, 0, uint64(n))
				return repeat(n, r, func(i int) { r.kv(short(i), gguf.TypeArray).u32(uint32(gguf.TypeU64)).length(0) })
			}},
			{"empty strings", 1 << 21, func(n int) *raw {
				r := newRaw(version, 0, 1).kv("a", gguf.TypeArray).u32(uint32(gguf.TypeString)).length(uint64(n))
				return repeat(n, r, func(int) { r.length(0) })
			}},
			{"strings of one byte", 1 << 20, func(n int) *raw {
				r := newRaw(version, 0, 1).kv("a", gguf.TypeArray).u32(uint32(gguf.TypeString)).length(uint64(n))
				return repeat(n, r, func(int) { r.str("a") })
			}},
			{"empty arrays in an array", 1 << 14, func(n int) *raw {
				r := newRaw(version, 0, 1).kv("a", gguf.TypeArray).u32(uint32(gguf.TypeArray)).length(uint64(n))
				return repeat(n, r, func(int) { r.u32(uint32(gguf.TypeU8)).length(0) })
			}},
			{"numbers", 1 << 20, func(n int) *raw {
				r := newRaw(version, 0, 1).kv("a", gguf.TypeArray).u32(uint32(gguf.TypeF64)).length(uint64(n))
				return repeat(n, r, func(i int) { r.u64(uint64(i)) })
			}},
			{"one long string", 32 << 20, func(n int) *raw {
				return newRaw(version, 0, 1).kv("a", gguf.TypeString).str(strings.Repeat("a", n))
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				file := c.file(c.n).b
				made, err := cost(file)
				assert.NoError(t, err)
				t.Logf("v%d: %d bytes cost %d, %.2f of what is allowed", version, len(file), made, float64(made)/float64(allowed(len(file))))
				assert.LessOrEqual(t, made, allowed(len(file)))
			})
		}
	}
}

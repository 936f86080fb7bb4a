package imatrix

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

func writeGGUF(t *testing.T, s Set) (string, Loss) {
	t.Helper()
	var out bytes.Buffer
	loss, err := WriteGGUF(&out, s)
	require.NoError(t, err)
	return writeFile(t, out.Bytes()), loss
}

func TestGGUFRoundTrip(t *testing.T) {
	info := Info{Datasets: []string{"a", "b"}, ChunkCount: 12, ChunkSize: 512, Provenance: map[string]string{"model": "m.safetensors", "version": "1"}}
	s, err := NewMemory(info, []*Entry{
		{Header: Header{"dense", 1, 3}, Sums: []float64{1, 2.5, 0}, Counts: []int64{1024}, Calls: 7},
		{Header: Header{"moe", 3, 2}, Sums: []float64{1, 2, 0, 0, 5, 6}, Counts: []int64{5, 0, 9}, Calls: 8},
	})
	require.NoError(t, err)
	path, loss := writeGGUF(t, s)
	assert.Equal(t, Loss{}, loss, "this form holds experts' counts and provenance")
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	assert.Equal(t, FormatGGUF, f.Format)
	assert.Equal(t, info, f.Info())
	assert.Equal(t, readAll(t, s), readAll(t, f))

	g, err := gguf.Open(path)
	require.NoError(t, err)
	defer g.Close()
	kind, _ := g.Metadata.Str("general.type")
	assert.Equal(t, "imatrix", kind)
	var names []string
	for _, x := range g.Tensors {
		names = append(names, x.Name+tensor.ShapeString(x.Shape))
	}
	assert.Equal(t, []string{"dense.in_sum2[3]", "dense.counts[1]", "moe.in_sum2[3,2]", "moe.counts[3,1]"}, names)
}

func TestDatThroughGGUFAndBack(t *testing.T) {
	var b datBytes
	b.i32(2).entry("a", 3, 1.1, 1e-20, 3e30).entry("b", 7, 0, 0.3).i32(7, 0)
	path, _ := writeGGUF(t, openDat(t, b.Bytes()))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	var out bytes.Buffer
	_, err = WriteDat(&out, f)
	require.NoError(t, err)
	assert.Equal(t, b.Bytes()[:b.Len()-4], out.Bytes())
}

// llamaFile builds what llama-imatrix writes: no keys of ours.
func llamaFile(t *testing.T, md gguf.Metadata, tensors map[string][]float32, order ...string) string {
	t.Helper()
	var infos []tensor.Info
	for _, name := range order {
		infos = append(infos, tensor.Info{Name: name, DType: tensor.F32, Shape: []int64{int64(len(tensors[name]))}})
	}
	layout, err := gguf.NewLayout(md, infos)
	require.NoError(t, err)
	data := make([]byte, layout.Size)
	copy(data, layout.Header)
	for i, name := range order {
		var one datBytes
		for _, v := range tensors[name] {
			one.i32(int32(math.Float32bits(v)))
		}
		copy(data[layout.Offsets[i]:], one.Bytes())
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func TestGGUFOfLlamaImatrix(t *testing.T) {
	md := gguf.Metadata{{Key: "general.type", Value: gguf.String("imatrix")}, {Key: "imatrix.chunk_size", Value: gguf.U32(512)}}
	f, err := Open(llamaFile(t, md, map[string][]float32{
		"w.in_sum2": {3, 6, 9, 12}, "w.counts": {1025, 0}, "w.in_sum": {1, 1, 1, 1},
	}, "w.in_sum2", "w.counts", "w.in_sum"))
	require.NoError(t, err)
	defer f.Close()
	e := readAll(t, f)[0]
	assert.Equal(t, Header{"w", 2, 2}, e.Header)
	assert.Equal(t, int64(3), e.Calls, "1025 rows in chunks of 512")
	w, err := e.Weights(2, 2)
	require.NoError(t, err)
	assert.Equal(t, []float32{float32(3) / 1025, float32(6) / 1025, 1, 1}, w)
}

func TestGGUFRefusesWhatIsNoMatrix(t *testing.T) {
	ok := gguf.Metadata{{Key: "general.type", Value: gguf.String("imatrix")}}
	nan := float32(math.NaN())
	for _, c := range []struct {
		name    string
		md      gguf.Metadata
		tensors map[string][]float32
		order   []string
		want    error
	}{
		{"a model", gguf.Metadata{{Key: "general.type", Value: gguf.String("model")}}, map[string][]float32{"w": {1}}, []string{"w"}, ErrFormat},
		{"no entries", ok, map[string][]float32{"w": {1}}, []string{"w"}, ErrEmpty},
		{"sums without counts", ok, map[string][]float32{"w.in_sum2": {1}}, []string{"w.in_sum2"}, ErrFormat},
		{"counts without sums", ok, map[string][]float32{"w.counts": {1}}, []string{"w.counts"}, ErrFormat},
		{"sums that counts do not divide", ok, map[string][]float32{"w.in_sum2": {1, 2, 3}, "w.counts": {1, 2}}, []string{"w.in_sum2", "w.counts"}, ErrFormat},
		{"fault 56: NaN", ok, map[string][]float32{"w.in_sum2": {nan}, "w.counts": {1}}, []string{"w.in_sum2", "w.counts"}, ErrNotFinite},
		{"fault 56: negative", ok, map[string][]float32{"w.in_sum2": {-1}, "w.counts": {1}}, []string{"w.in_sum2", "w.counts"}, ErrNotFinite},
		{"fault 56: NaN count", ok, map[string][]float32{"w.in_sum2": {1}, "w.counts": {nan}}, []string{"w.in_sum2", "w.counts"}, ErrNotFinite},
		{"absurd count", ok, map[string][]float32{"w.in_sum2": {1}, "w.counts": {3e38}}, []string{"w.in_sum2", "w.counts"}, ErrNotFinite},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := llamaFile(t, c.md, c.tensors, c.order...)
			_, err := Open(path)
			require.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, path)
		})
	}
}

func TestLongNamesAreNamed(t *testing.T) {
	short, long := "w", "model.diffusion_model.double_blocks.0.img_attn.proj.weight"
	s := memory(t, sums(short, 1, 1), sums(long, 1, 1))
	assert.Equal(t, []string{long}, LongNames(s))
}

func FuzzOpen(f *testing.F) {
	var b datBytes
	b.i32(2).entry("w", 4, 0.5, 2).entry("a", 3, 1).i32(1, 1)
	b.WriteString("x")
	f.Add(b.Bytes())
	f.Add((&datBytes{}).i32(1 << 30).Bytes())
	f.Add((&datBytes{}).i32(1, -1).Bytes())
	s, err := NewMemory(Info{Datasets: []string{"d"}}, []*Entry{{Header: Header{"w", 2, 1}, Sums: []float64{1, 2}, Counts: []int64{1, 0}}})
	if err != nil {
		f.Fatal(err)
	}
	var g bytes.Buffer
	if _, err := WriteGGUF(&g, s); err != nil {
		f.Fatal(err)
	}
	f.Add(g.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := OpenReaderAt(bytes.NewReader(data), int64(len(data)), "m")
		if err != nil {
			return
		}
		var out bytes.Buffer
		if _, err := WriteDat(&out, m); err != nil {
			return // nothing was ever counted
		}
		if _, err := OpenReaderAt(bytes.NewReader(out.Bytes()), int64(out.Len()), "m"); err != nil {
			t.Fatalf("what was written from a readable file cannot be read: %v", err)
		}
	})
}

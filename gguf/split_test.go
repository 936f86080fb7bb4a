package gguf_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// part is one file of a split set: its split keys, and its tensors' names.
type part struct {
	no, count, tensors int
	names              []string
}

// writeSet writes a set of parts and returns the prefix of its paths.
func writeSet(t *testing.T, parts ...part) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "модель")
	for i, p := range parts {
		md := gguf.Metadata{{Key: gguf.KeySplitNo, Value: gguf.U16(uint16(p.no))}, {Key: gguf.KeySplitCount, Value: gguf.U16(uint16(p.count))},
			{Key: gguf.KeySplitTensors, Value: gguf.I32(int32(p.tensors))}}
		if i == 0 {
			md = append(md, gguf.KV{Key: gguf.KeyArchitecture, Value: gguf.String("flux")})
		}
		var infos []tensor.Info
		for _, name := range p.names {
			infos = append(infos, tensor.Info{Name: name, DType: tensor.F32, Shape: []int64{int64(i + 1)}})
		}
		file, _ := build(t, md, infos...)
		require.NoError(t, os.WriteFile(gguf.SplitName(prefix, i, len(parts)), file, 0o600))
	}
	return prefix
}

func sound() []part {
	return []part{{0, 3, 4, []string{"a", "b"}}, {1, 3, 4, []string{"c"}}, {2, 3, 4, []string{"d"}}}
}

func TestAnyPartOpensTheSet(t *testing.T) {
	prefix := writeSet(t, sound()...)
	for i := range 3 {
		f := open(t, gguf.SplitName(prefix, i, 3))
		var names []string
		for _, x := range f.Tensors {
			names = append(names, x.Name)
			readAll(t, x)
		}
		assert.Equal(t, []string{"a", "b", "c", "d"}, names)
		assert.Equal(t, []string{gguf.SplitName(prefix, 0, 3), gguf.SplitName(prefix, 1, 3), gguf.SplitName(prefix, 2, 3)}, f.Paths)
		arch, _ := f.Metadata.Str(gguf.KeyArchitecture)
		assert.Equal(t, "flux", arch)
		assert.NoError(t, f.Check())
	}
}

func TestMissingPartsAreNamed(t *testing.T) {
	prefix := writeSet(t, sound()...)
	require.NoError(t, os.Remove(gguf.SplitName(prefix, 0, 3)))
	require.NoError(t, os.Remove(gguf.SplitName(prefix, 2, 3)))
	_, err := gguf.Open(gguf.SplitName(prefix, 1, 3))
	var missing *gguf.MissingPartsError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, []string{gguf.SplitName(prefix, 0, 3), gguf.SplitName(prefix, 2, 3)}, missing.Missing)
}

func TestPartsThatDoNotBelongTogetherAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts []part
		kind  gguf.ErrorKind
		msg   string
	}{
		{"wrong number", []part{{0, 2, 2, []string{"a"}}, {0, 2, 2, []string{"b"}}}, gguf.KindSplit, `metadata key "split.no": found 0, want 1`},
		{"count against the name", []part{{0, 3, 2, []string{"a"}}, {1, 3, 2, []string{"b"}}}, gguf.KindSplit, "found 3, but the file name says 2"},
		{"count in another part", []part{{0, 2, 2, []string{"a"}}, {1, 5, 2, []string{"b"}}}, gguf.KindSplit, `"split.count": found 5, want 2`},
		{"tensor in two parts", []part{{0, 2, 2, []string{"a"}}, {1, 2, 2, []string{"a"}}}, gguf.KindDuplicateTensor, `tensor "a": the tensor is in модель-00001-of-00002.gguf too`},
		{"number of tensors", []part{{0, 2, 3, []string{"a"}}, {1, 2, 3, []string{"b"}}}, gguf.KindSplit, "found 3, but the parts hold 2 tensors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			prefix := writeSet(t, c.parts...)
			_, err := gguf.Open(gguf.SplitName(prefix, 0, len(c.parts)))
			var fe *gguf.FormatError
			require.ErrorAs(t, err, &fe)
			assert.Equal(t, c.kind, fe.Kind)
			assert.ErrorContains(t, err, c.msg)
		})
	}
}

func TestAPartUnderAnotherNameIsRefused(t *testing.T) {
	prefix := writeSet(t, sound()...)
	other := filepath.Join(filepath.Dir(prefix), "renamed.gguf")
	require.NoError(t, os.Rename(gguf.SplitName(prefix, 0, 3), other))
	_, err := gguf.Open(other)
	assert.ErrorContains(t, err, "want PREFIX-00001-of-00003.gguf")
}

func TestACutPartStillShowsTheSet(t *testing.T) {
	prefix := writeSet(t, sound()...)
	second := gguf.SplitName(prefix, 1, 3)
	b, err := os.ReadFile(second)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(second, b[:len(b)-30], 0o600))
	for i := range 3 {
		f, err := gguf.Open(gguf.SplitName(prefix, i, 3))
		var cut *gguf.TruncatedError
		require.ErrorAs(t, err, &cut)
		assert.Equal(t, second, cut.Path)
		assert.Len(t, f.Tensors, 4)
	}
}

func TestSplitNames(t *testing.T) {
	prefix, i, n, ok := gguf.ParseSplitName("a/b-00002-of-00010.gguf")
	assert.True(t, ok)
	assert.Equal(t, []any{"a/b", 1, 10}, []any{prefix, i, n})
	for _, bad := range []string{"", "m.gguf", "b-00000-of-00010.gguf", "b-00011-of-00010.gguf", "b-0002-of-00010.gguf", "b-+0002-of-00010.gguf", "b-00002-of-00010.GGUF"} {
		_, _, _, ok := gguf.ParseSplitName(bad)
		assert.False(t, ok, bad)
	}
}

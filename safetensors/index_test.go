package safetensors_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// shard writes a file of U8[2] tensors into a folder.
func shard(t *testing.T, folder, name string, tensors ...string) {
	t.Helper()
	var infos []tensor.Info
	for _, x := range tensors {
		infos = append(infos, tensor.Info{Name: x, DType: tensor.U8, Shape: []int64{2}})
	}
	l, err := safetensors.NewLayout(map[string]string{"shard": name}, infos)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), append(l.Header, make([]byte, 2*len(infos))...), 0o600))
}

// index writes an index, from tensor name to shard.
func index(t *testing.T, folder string, weights map[string]string) (path string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 4.0}, "weight_map": weights})
	require.NoError(t, err)
	path = filepath.Join(folder, "model.safetensors.index.json")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

func names(f *safetensors.File) (names []string) {
	for _, x := range f.Tensors {
		names = append(names, x.Name)
	}
	return names
}

func TestAnIndexOrItsFolderOpensTheSet(t *testing.T) {
	folder := t.TempDir()
	shard(t, folder, "тест é-00001.safetensors", "a", "b")
	shard(t, folder, "sub/тест é-00002.safetensors", "c", "extra")
	path := index(t, folder, map[string]string{"a": "тест é-00001.safetensors", "b": "тест é-00001.safetensors", "c": "sub/тест é-00002.safetensors"})
	for _, input := range []string{path, folder} {
		f, err := safetensors.OpenIndex(input)
		require.NoError(t, err)
		assert.Equal(t, []string{"c", "extra", "a", "b"}, names(f))
		assert.Equal(t, []string{"extra"}, f.Unlisted)
		assert.Equal(t, path, f.Index)
		assert.Len(t, f.Paths, 2)
		assert.Equal(t, map[string]string{"shard": "sub/тест é-00002.safetensors"}, f.Metadata)
		for _, x := range f.Tensors {
			assert.Equal(t, []byte{0, 0}, readAll(t, x))
		}
		assert.NoError(t, f.Check())
		assert.NoError(t, f.Close())
	}
}

func TestAnIndexOfOtherFilesIsRead(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"1.bin", "2.bin"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	path := index(t, folder, map[string]string{"a": "1.bin", "b": "2.bin", "c": "./1.bin"})
	x, err := safetensors.ReadIndex(path)
	require.NoError(t, err)
	first, second := filepath.Join(folder, "1.bin"), filepath.Join(folder, "2.bin")
	assert.Equal(t, []string{first, second}, x.Shards)
	assert.Equal(t, map[string]string{"a": first, "b": second, "c": first}, x.Tensors)
}

func TestFoldersWithNoneOrSeveralIndexes(t *testing.T) {
	folder := t.TempDir()
	_, err := safetensors.OpenIndex(folder)
	assert.ErrorIs(t, err, safetensors.ErrNoIndex)
	for _, name := range []string{"a.safetensors.index.json", "a.safetensors.index.fp16.json"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("{}"), 0o600))
	}
	found, err := safetensors.FindIndex(folder, "")
	require.NoError(t, err)
	assert.Equal(t, "a.safetensors.index.json", filepath.Base(found))
	found, err = safetensors.FindIndex(folder, "fp16")
	require.NoError(t, err)
	assert.Equal(t, "a.safetensors.index.fp16.json", filepath.Base(found))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "b.safetensors.index.json"), []byte("{}"), 0o600))
	_, err = safetensors.OpenIndex(folder)
	assert.ErrorContains(t, err, "found 2 safetensors indexes, name one: a.safetensors.index.json, b.safetensors.index.json")
}

func TestFault021TakesExactlyTheIndexedShards(t *testing.T) {
	t.Run("missing shards are listed", func(t *testing.T) {
		folder := t.TempDir()
		shard(t, folder, "1.safetensors", "a")
		path := index(t, folder, map[string]string{"a": "1.safetensors", "b": "2.safetensors", "c": "3.safetensors", "d": "2.safetensors"})
		_, err := safetensors.OpenIndex(path)
		var missing *safetensors.MissingShardsError
		require.ErrorAs(t, err, &missing)
		assert.Equal(t, []string{filepath.Join(folder, "2.safetensors"), filepath.Join(folder, "3.safetensors")}, missing.Missing)
	})
	t.Run("a stray file is left alone", func(t *testing.T) {
		folder := t.TempDir()
		shard(t, folder, "1.safetensors", "a")
		shard(t, folder, "model.safetensors", "a", "z")
		f, err := safetensors.OpenIndex(index(t, folder, map[string]string{"a": "1.safetensors"}))
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, names(f))
		require.NoError(t, f.Close())
	})
	t.Run("a map that names the wrong shard", func(t *testing.T) {
		folder := t.TempDir()
		shard(t, folder, "1.safetensors", "a")
		shard(t, folder, "2.safetensors", "b")
		_, err := safetensors.OpenIndex(index(t, folder, map[string]string{"a": "2.safetensors", "b": "2.safetensors", "c": "1.safetensors"}))
		var wrong *safetensors.MisplacedError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, []safetensors.Misplaced{{Name: "a", Shard: "2.safetensors", Found: filepath.Join(folder, "1.safetensors")}, {Name: "c", Shard: "1.safetensors"}}, wrong.Tensors)
	})
	t.Run("a shard outside the folder", func(t *testing.T) {
		parent := t.TempDir()
		folder := filepath.Join(parent, "model")
		shard(t, parent, "1.safetensors", "a")
		require.NoError(t, os.Mkdir(folder, 0o700))
		for _, name := range []string{"../1.safetensors", "x/../../1.safetensors", filepath.Join(parent, "1.safetensors")} {
			path := index(t, folder, map[string]string{"a": name})
			_, err := safetensors.OpenIndex(path)
			var fe *safetensors.FormatError
			require.ErrorAs(t, err, &fe)
			assert.Equal(t, safetensors.KindIndex, fe.Kind)
			assert.ErrorContains(t, err, "outside the folder")
			f, err := safetensors.OpenIndex(path, safetensors.AllowOutside())
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	})
	t.Run("links may lead outside, as in a download cache", func(t *testing.T) {
		parent := t.TempDir()
		folder := filepath.Join(parent, "model")
		shard(t, parent, "blob", "a")
		require.NoError(t, os.Mkdir(folder, 0o700))
		if err := os.Symlink("../blob", filepath.Join(folder, "1.safetensors")); err != nil {
			t.Skip("no symbolic links here: ", err)
		}
		f, err := safetensors.OpenIndex(index(t, folder, map[string]string{"a": "1.safetensors"}))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	})
}

func TestMalformedIndexesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, text string
		kind       safetensors.ErrorKind
		msg        string
	}{
		{"empty", "", safetensors.KindJSON, "found the end"},
		{"web page", "<html>", safetensors.KindForeign, "HTML"},
		{"git lfs", "version https://git-lfs.github.com/spec/v1\n", safetensors.KindForeign, "Git LFS"},
		{"array", "[]", safetensors.KindJSON, "want '{'"},
		{"no map", `{"metadata":{}}`, safetensors.KindIndex, "names no tensors"},
		{"empty map", `{"weight_map":{}}`, safetensors.KindIndex, "names no tensors"},
		{"map twice", `{"weight_map":{"a":"1"},"weight_map":{}}`, safetensors.KindDuplicateKey, "weight_map"},
		{"name twice", `{"weight_map":{"a":"1","b":"1","a":"2"}}`, safetensors.KindDuplicateKey, `tensor "a"`},
		{"number for a shard", `{"weight_map":{"a":1}}`, safetensors.KindJSON, "want a string"},
		{"empty shard", `{"weight_map":{"a":""}}`, safetensors.KindIndex, "not a file name"},
		{"NUL", `{"weight_map":{"a":"1\u0000"}}`, safetensors.KindIndex, "not a file name"},
		{"escape sequence", `{"weight_map":{"a":"\u001b[2J"}}`, safetensors.KindIndex, "not a file name"},
		{"bidi control", `{"weight_map":{"a":"\u202egpj.exe"}}`, safetensors.KindIndex, "not a file name"},
		{"long name", `{"weight_map":{"a":"` + strings.Repeat("n", 4097) + `"}}`, safetensors.KindIndex, "not a file name"},
		{"longer than a name may be", `{"weight_map":{"a":"` + strings.Repeat("n", 4096) + `"}}`, 0, "too long"},
		{"itself", `{"weight_map":{"a":"./x/../model.safetensors.index.json"}}`, safetensors.KindIndex, "it is the index itself"},
		{"its folder", `{"weight_map":{"a":"."}}`, 0, "directory"},
		{"text after", `{"weight_map":{"a":"1"}} {}`, safetensors.KindJSON, "after the end"},
		{"deep", `{"x":` + strings.Repeat("[", 1<<20), safetensors.KindJSON, "nested more than 128 deep"},
		{"not UTF-8", "{\"\xff\":1}", safetensors.KindUTF8, "UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := save(t, "model.safetensors.index.json", []byte(c.text))
			_, err := safetensors.OpenIndex(path)
			require.ErrorContains(t, err, c.msg)
			assert.ErrorContains(t, err, filepath.Dir(path))
			if c.kind != 0 {
				var fe *safetensors.FormatError
				require.ErrorAs(t, err, &fe)
				assert.Equal(t, c.kind, fe.Kind)
			}
		})
	}
}

func TestACutShardStillShowsTheSet(t *testing.T) {
	folder := t.TempDir()
	shard(t, folder, "1.safetensors", "a")
	shard(t, folder, "2.safetensors", "b")
	second := filepath.Join(folder, "2.safetensors")
	info, err := os.Stat(second)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(second, info.Size()-1))
	f, err := safetensors.OpenIndex(index(t, folder, map[string]string{"a": "1.safetensors", "b": "2.safetensors"}))
	var cut *safetensors.TruncatedError
	require.ErrorAs(t, err, &cut)
	assert.Equal(t, second, cut.Path)
	assert.Equal(t, []string{"a", "b"}, names(f))
}

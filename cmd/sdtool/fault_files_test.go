package main

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// Faults that users of other tools reported, by their number in the project's
// list. Those about one file format alone are tested in its package.

// sdtool convert of one file to another in a fresh folder.
func convertOne(t *testing.T, out string, args []string, tensors ...raw) string {
	t.Helper()
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, tensors...)
	path := filepath.Join(dir, out)
	ok(t, append([]string{"convert", "-m", in, "-o", path}, args...)...)
	return path
}

func TestFault001FileOver4GiB(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a sparse file of 4 GiB")
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "out.gguf")
	last := raw{tensor.Info{Name: "last", DType: tensor.F32, Shape: []int64{4}}, f32s(1, 2, 3, 4)}
	sparseFile(t, in, []tensor.Info{{Name: "big", DType: tensor.F16, Shape: []int64{2200, 1 << 20}}}, last)
	ok(t, "convert", "-m", in, "-o", out)
	cp, err := convert.Open(out, convert.OpenOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, cp.Close()) }()
	require.Greater(t, cp.Size, int64(1)<<32)
	got := make([]byte, 16)
	_, err = cp.Tensors[1].Source.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, last.data, got)
}

// A tensor of more than 2^31 elements, in the planner alone.
func TestFault001ManyElements(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs sparse files")
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	sparseFile(t, in, []tensor.Info{{Name: "big", DType: tensor.F16, Shape: []int64{1 << 23, 512}}})
	r := ok(t, "convert", "-m", in, "--type", "q8_0", "--dry-run")
	require.Contains(t, r.stdout, "4563402752") // 2^32 / 32 · 34
}

func TestFault002NothingFound(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.gguf")
	empty := writeFile(t, filepath.Join(dir, "empty.safetensors"), map[string]string{"a": "b"})
	fails(t, exitFailed, "no tensors to write", "convert", "-m", empty, "-o", out)
	foo := filepath.Join(dir, "foo.safetensors")
	text := `{"foo":"bar"}`
	require.NoError(t, os.WriteFile(foo, append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), 0o600))
	fails(t, exitFailed, "foo", "convert", "-m", foo, "-o", out)
	require.NoFileExists(t, out)
}

func TestFault004NotAModel(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n": "Git LFS pointer",
		"<!DOCTYPE html><html>": "HTML",
		"":                      "",
	} {
		path := filepath.Join(dir, "x.safetensors")
		require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
		for _, command := range [][]string{{"inspect", path}, {"convert", "-m", path, "-o", filepath.Join(dir, "o.gguf")}} {
			r := fails(t, exitFailed, want, command...)
			require.Contains(t, r.stderr, path)
		}
	}
}

func TestFault005CutShort(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"x.safetensors", "x.gguf"} {
		path := writeFile(t, filepath.Join(dir, name), nil, rampTensor("a.weight", 4, 32), rampTensor("b.weight", 4, 32))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()-100))
		out := filepath.Join(dir, "out.gguf")
		fails(t, exitFailed, "b.weight", "convert", "-m", path, "-o", out)
		require.NoFileExists(t, out)
		// inspect shows what is there and fails.
		r := fails(t, exitFailed, "b.weight", "inspect", "--tensors", path)
		require.Contains(t, r.stdout, "CUT SHORT")
		require.Contains(t, r.stdout, "a.weight")
	}
}

func TestFault016LongNames(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 70)
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor(long+".a", 2, 2), rampTensor(long+".b", 2, 2))
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", in, "-o", out)
	require.Contains(t, r.stderr, "longer than 63 bytes")
	require.Len(t, contents(t, out), 2)
	r = fails(t, exitFailed, long+".a", "convert", "-m", in, "-o", filepath.Join(dir, "o.gguf"), "--name-limit", "63")
	require.Contains(t, r.stderr, "63")
	longer := writeFile(t, filepath.Join(dir, "in2.safetensors"), nil, rampTensor(strings.Repeat("y", 200), 2, 2))
	fails(t, exitFailed, "159", "convert", "-m", longer, "-o", filepath.Join(dir, "o.gguf"))
	ok(t, "convert", "-m", longer, "-o", filepath.Join(dir, "o.safetensors"))
}

func TestFault017SplitKeys(t *testing.T) {
	dir := t.TempDir()
	part := func(i int, x raw) string {
		path := filepath.Join(dir, gguf.SplitName("m", i, 2))
		var md gguf.Metadata
		md.Set(gguf.KeySplitNo, gguf.U16(uint16(i)))
		md.Set(gguf.KeySplitCount, gguf.U16(2))
		md.Set(gguf.KeySplitTensors, gguf.I32(2))
		layout, err := gguf.NewLayout(md, []tensor.Info{x.Info})
		require.NoError(t, err)
		buf := make([]byte, layout.Size)
		copy(buf, layout.Header)
		copy(buf[layout.Offsets[0]:], x.data)
		require.NoError(t, os.WriteFile(path, buf, 0o600))
		return path
	}
	first := part(0, rampTensor("a", 2, 32))
	part(1, rampTensor("b", 2, 32))
	for i, in := range []string{first, dir} {
		out := filepath.Join(t.TempDir(), "out.gguf")
		ok(t, "convert", "-m", in, "-o", out, "--type", "q8_0")
		cp, err := convert.Open(out, convert.OpenOptions{})
		require.NoError(t, err, i)
		require.Len(t, cp.Tensors, 2)
		for _, kv := range cp.Metadata {
			require.False(t, strings.HasPrefix(kv.Key, "split."), kv.Key)
		}
		require.NoError(t, cp.Close())
	}
}

func TestFault018OutputIsInput(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a", 2, 32))
	before, err := os.ReadFile(in)
	require.NoError(t, err)
	names := []string{in, filepath.Join(dir, ".", "x", "..", "in.safetensors"), filepath.Join(dir, "hard.safetensors"), filepath.Join(dir, "soft.safetensors")}
	require.NoError(t, os.Link(in, names[2]))
	if err := os.Symlink(in, names[3]); err != nil {
		names = names[:3]
	}
	for _, out := range append(names[:1:1], names[2:]...) {
		r := fails(t, exitFailed, "input", "convert", "-m", in, "-o", out, "--overwrite")
		require.Contains(t, r.stderr, out)
		after, err := os.ReadFile(in)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	other := writeFile(t, filepath.Join(dir, "other.safetensors"), nil, rampTensor("b", 2, 32))
	fails(t, exitFailed, "already exists", "convert", "-m", in, "-o", other)
}

func TestFault018OutputIsShardOrMatrix(t *testing.T) {
	dir := t.TempDir()
	shard := writeFile(t, filepath.Join(dir, "m-00001-of-00001.safetensors"), nil, rampTensor("a", 2, 32))
	index := filepath.Join(dir, "m.safetensors.index.json")
	require.NoError(t, os.WriteFile(index, []byte(`{"weight_map":{"a":"m-00001-of-00001.safetensors"}}`), 0o600))
	fails(t, exitFailed, "input", "convert", "-m", index, "-o", shard, "--overwrite")
	fails(t, exitFailed, "input", "convert", "-m", index, "-o", index, "--format", "gguf", "--overwrite")
}

func TestFault019NoSpace(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a", 2, 32))
	fails(t, exitFailed, "/dev/full", "convert", "-m", in, "-o", "/dev/full", "--format", "gguf", "--overwrite")
}

func TestFault020Unicode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "模型 é")
	require.NoError(t, os.Mkdir(dir, 0o700))
	writeFile(t, filepath.Join(dir, "тест é.safetensors"), nil, rampTensor("a.weight", 2, 32))
	index := filepath.Join(dir, "模型.safetensors.index.json")
	require.NoError(t, os.WriteFile(index, []byte(`{"weight_map":{"a.weight":"тест é.safetensors"}}`), 0o600))
	out := filepath.Join(dir, "выход 出.gguf")
	ok(t, "convert", "-m", index, "-o", out, "--type", "q4_0")
	require.Equal(t, map[string]string{"a.weight": "q4_0"}, types(t, out))
}

func TestFault021Shards(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.gguf")
	shard := writeFile(t, filepath.Join(dir, "m-1.safetensors"), nil, rampTensor("a", 2, 32))
	index := filepath.Join(dir, "model.safetensors.index.json")
	write := func(text string) { require.NoError(t, os.WriteFile(index, []byte(text), 0o600)) }

	write(`{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}`)
	fails(t, exitFailed, "m-2.safetensors", "convert", "-m", dir, "-o", out)
	write(`{"weight_map":{"a":"m-1.safetensors"}}`)
	writeFile(t, filepath.Join(dir, "model.safetensors"), nil, rampTensor("a", 4, 4))
	ok(t, "convert", "-m", dir, "-o", out)
	require.Equal(t, []int64{2, 32}, contents(t, out)["a"].Shape)
	writeFile(t, filepath.Join(dir, "m-2.safetensors"), nil, rampTensor("b", 2, 32))
	write(`{"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors"}}`)
	fails(t, exitFailed, "m-2.safetensors", "convert", "-m", index, "-o", out, "--overwrite")
	sub := filepath.Join(dir, "sub")
	require.NoError(t, os.Mkdir(sub, 0o700))
	index = filepath.Join(sub, "model.safetensors.index.json")
	write(`{"weight_map":{"a":"../m-1.safetensors"}}`)
	fails(t, exitFailed, "m-1.safetensors", "convert", "-m", sub, "-o", out, "--overwrite")
	ok(t, "convert", "-m", sub, "-o", out, "--overwrite", "--allow-outside")
	require.FileExists(t, shard)
}

// A killed process leaves the old output, or none; the next run cleans up.
func TestFault022Killed(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a process at random instants")
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "out.gguf")
	sparseFile(t, in, []tensor.Info{{Name: "big", DType: tensor.F16, Shape: []int64{8192, 8192}}})
	require.NoError(t, os.WriteFile(out, []byte("old"), 0o600))
	exe := built(t)
	for i := range 10 {
		cmd := exec.Command(exe, "convert", "-m", in, "-o", out, "--type", "q4_0", "--overwrite", "--quiet")
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(i*i*3) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		if cmd.Wait() == nil {
			break // it was faster
		}
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		if string(got) == "old" {
			continue
		}
		// The kill came after the rename: the new file is whole.
		require.Equal(t, map[string]string{"big": "q4_0"}, types(t, out))
		break
	}
	ok(t, "convert", "-m", in, "-o", out, "--type", "q4_0", "--overwrite")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "a temporary file is left")
}

func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a", 2, 32))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := sdtoolContext(t, ctx, "convert", "-m", in, "-o", filepath.Join(dir, "out.gguf"))
	require.Equal(t, exitInterrupted, r.code, r.stderr)
	require.Contains(t, r.stderr, "interrupted")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// sparseFile writes a safetensors file whose leading tensors are holes.
func sparseFile(t *testing.T, path string, holes []tensor.Info, tensors ...raw) {
	t.Helper()
	infos := holes
	for _, x := range tensors {
		infos = append(infos, x.Info)
	}
	writeSparse(t, path, infos, tensors, len(holes))
}

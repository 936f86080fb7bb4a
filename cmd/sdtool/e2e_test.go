package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// result is what a command line left.
type result struct {
	code           int
	stdout, stderr string
}

// sdtool runs a command line in this process.
func sdtool(t *testing.T, args ...string) result {
	t.Helper()
	return sdtoolContext(t, context.Background(), args...)
}

func sdtoolContext(t *testing.T, ctx context.Context, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	a := &app{stdout: &out, stderr: &errOut, getenv: os.Getenv}
	code := a.run(ctx, args)
	return result{code, out.String(), errOut.String()}
}

// ok runs a command line that must succeed.
func ok(t *testing.T, args ...string) result {
	t.Helper()
	r := sdtool(t, args...)
	require.Equal(t, exitOK, r.code, "sdtool %q: %s%s", args, r.stdout, r.stderr)
	return r
}

// fails runs a command line that must fail with the code and the words.
func fails(t *testing.T, code int, words string, args ...string) result {
	t.Helper()
	r := sdtool(t, args...)
	require.Equal(t, code, r.code, "sdtool %q: %s%s", args, r.stdout, r.stderr)
	require.Contains(t, r.stderr, words)
	return r
}

var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sdtool-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "sdtool")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return path, nil
})

// built returns the path of the built program.
func built(t *testing.T) string {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	return path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// raw is a tensor of a test file with its bytes.
type raw struct {
	tensor.Info
	data []byte
}

func f32s(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// ramp returns n F32 values from -1 on, all different.
func ramp(n int) []byte {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i)/float32(n)*2 - 1
	}
	return f32s(values...)
}

// zeros returns a tensor without a value in it.
func zeros(name string, d tensor.DType, shape ...int64) raw {
	info := tensor.Info{Name: name, DType: d, Shape: shape}
	n, err := info.Bytes()
	if err != nil {
		panic(err) // a test that writes nonsense
	}
	return raw{info, make([]byte, n)}
}

func rampTensor(name string, shape ...int64) raw {
	n, err := tensor.Elements(shape)
	if err != nil {
		panic(err) // a test that writes nonsense
	}
	return raw{tensor.Info{Name: name, DType: tensor.F32, Shape: shape}, ramp(int(n))}
}

// writeFile writes a safetensors or GGUF file by the ending of its name.
func writeFile(t *testing.T, path string, md map[string]string, tensors ...raw) string {
	t.Helper()
	infos := make([]tensor.Info, len(tensors))
	for i, x := range tensors {
		infos[i] = x.Info
	}
	var layout *tensor.Layout
	var err error
	if filepath.Ext(path) == ".gguf" {
		var keys gguf.Metadata
		for key, value := range md {
			keys.Set(key, gguf.String(value))
		}
		layout, err = gguf.NewLayout(keys, infos)
	} else {
		layout, err = safetensors.NewLayout(md, infos)
	}
	require.NoError(t, err)
	buf := make([]byte, layout.Size)
	copy(buf, layout.Header)
	for i, x := range tensors {
		copy(buf[layout.Offsets[i]:], x.data)
	}
	require.NoError(t, os.WriteFile(path, buf, 0o600))
	return path
}

// contents reads every tensor of a file.
func contents(t *testing.T, path string) map[string]raw {
	t.Helper()
	cp, err := convert.Open(path, convert.OpenOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, cp.Close()) }()
	all := make(map[string]raw)
	for _, x := range cp.Tensors {
		data, err := io.ReadAll(io.NewSectionReader(x.Source, 0, x.Source.Size()))
		require.NoError(t, err)
		all[x.Name] = raw{x.Info, data}
	}
	return all
}

// types returns name → dtype of a file.
func types(t *testing.T, path string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for name, x := range contents(t, path) {
		out[name] = x.DType.String()
	}
	return out
}

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// python runs testdata/python/interop.py with $SDTOOL_PYTHON, or python3. Where
// that lacks the packages the test is skipped; in CI it fails.
func python(t *testing.T, args ...string) string {
	t.Helper()
	exe := os.Getenv("SDTOOL_PYTHON")
	if exe == "" {
		exe = "python3"
	}
	if out, err := exec.Command(exe, "-c", "import numpy, safetensors, gguf").CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("python packages are required in CI: %v: %s", err, out)
		}
		t.Skipf("needs python with numpy, safetensors and gguf (.ci/requirements.txt); SDTOOL_PYTHON names it: %v", err)
	}
	script := filepath.Join("..", "..", "testdata", "python", "interop.py")
	cmd := exec.Command(exe, append([]string{"-B", script}, args...)...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, errOut.Bytes())
	return string(out)
}

// What the safetensors and gguf packages write we read, and what we write they
// read, with equal values, for every dtype.
func TestInteropValues(t *testing.T) {
	dir := t.TempDir()
	python(t, "make", dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	tests := []struct {
		from, to string
		args     []string
	}{
		{"all.safetensors", "a.safetensors", nil},
		{"all.safetensors", "a.gguf", nil},
		{"all.gguf", "b.gguf", nil},
		{"all.gguf", "b.safetensors", []string{"--type", "f32"}},
		{"bf16.safetensors", "c.gguf", nil},
		{"bf16.safetensors", "c.safetensors", nil},
		{"bf16.safetensors", "f32.gguf", []string{"--type", "f32"}},
		{"c.gguf", "d.safetensors", nil},
	}
	for _, tt := range tests {
		t.Run(tt.from+" to "+tt.to, func(t *testing.T) {
			ok(t, append([]string{"convert", "-m", in(tt.from), "-o", in(tt.to)}, tt.args...)...)
			if tt.from == "c.gguf" { // whose shapes are those that GGUF can hold
				tt.from = "bf16.safetensors"
			}
			python(t, "compare", in(tt.from), in(tt.to))
		})
	}
	// Through GGUF and back, shapes that GGUF does not keep are as they were.
	require.Equal(t, []int64{8, 16, 1, 2, 2}, contents(t, in("d.safetensors"))["patch.weight"].Shape)
	require.Equal(t, []int64{1, 6, 32}, contents(t, in("d.safetensors"))["pos"].Shape)
	require.Empty(t, contents(t, in("d.safetensors"))["log_scale"].Shape)
}

// gguf-py dequantizes our blocks to the numbers that we do.
func TestInteropQuantized(t *testing.T) {
	dir := t.TempDir()
	python(t, "make", dir)
	source := filepath.Join(dir, "bf16.safetensors")
	for _, typ := range []string{
		"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "tq1_0", "tq2_0", "mxfp4",
		"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs",
	} {
		t.Run(typ, func(t *testing.T) {
			quantized, plain := filepath.Join(dir, typ+".gguf"), filepath.Join(dir, typ+".safetensors")
			ok(t, "convert", "-m", source, "-o", quantized, "--type", typ, "--allow-no-imatrix", "--include", "blocks")
			require.Equal(t, "f16", types(t, quantized)["blocks.0.norm.weight"])
			ok(t, "convert", "-m", quantized, "-o", plain, "--type", "f32")
			python(t, "compare", quantized, plain, "1e-6")
		})
	}
}

// The order in which ComfyUI-GGUF reads a file: prefix, architecture, recorded
// shapes, numbers.
func TestInteropComfy(t *testing.T) {
	dir := t.TempDir()
	python(t, "make", dir)
	out := filepath.Join(dir, "out.gguf")
	ok(t, "convert", "-d", filepath.Join(dir, "bf16.safetensors"), "-o", out, "--type", "q8_0", "--family", "flux")
	var got struct {
		Arch    string
		Tensors map[string]struct {
			Shape []int64
			Type  string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(python(t, "comfy", out, "flux")), &got))
	require.Equal(t, "flux", got.Arch)
	require.Len(t, got.Tensors, 6)
	require.Equal(t, []int64{8, 16, 1, 2, 2}, got.Tensors["patch.weight"].Shape)
	require.Equal(t, []int64{1, 6, 32}, got.Tensors["pos"].Shape)
	require.Equal(t, "Q8_0", got.Tensors["blocks.0.attn.weight"].Type)
	require.Equal(t, "F16", got.Tensors["blocks.0.norm.weight"].Type)
}

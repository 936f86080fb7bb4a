package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestUsageErrors(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a", 2, 32))
	out := filepath.Join(dir, "out.gguf")
	tests := []struct {
		words string
		args  []string
	}{
		{"unknown command", []string{"frobnicate"}},
		{"unknown flag", []string{"convert", "--nope"}},
		{"no input", []string{"convert", "-o", out}},
		{"no output", []string{"convert", "-m", in}},
		{"unknown type", []string{"convert", "-m", in, "-o", out, "--type", "q9"}},
		{"nothing can be converted to type q8_1", []string{"convert", "-m", in, "-o", out, "--type", "q8_1"}},
		{"a safetensors file cannot hold q4_K", []string{"convert", "-m", in, "-o", filepath.Join(dir, "o.safetensors"), "--type", "q4_K"}},
		{"a gguf file cannot hold f8_e4m3", []string{"convert", "-m", in, "-o", out, "--type", "f8_e4m3"}},
		{".gguf or .safetensors", []string{"convert", "-m", in, "-o", filepath.Join(dir, "out.bin")}},
		{"want gguf or safetensors", []string{"convert", "-m", in, "-o", out, "--format", "onnx"}},
		{"want sd-cli", []string{"convert", "-m", in, "-o", out, "--compat", "llama"}},
		{"want keep, ldm or comfy", []string{"convert", "-m", in, "-o", out, "--names", "x"}},
		{"--family", []string{"convert", "-m", in, "-o", out, "--family", "x"}},
		{"--include", []string{"convert", "-m", in, "-o", out, "--include", "("}},
		{"unknown preset", []string{"convert", "-m", in, "-o", out, "--preset", "x"}},
		{"size", []string{"convert", "-m", in, "-o", out, "--max-memory", "lots"}},
		{"exclude each other", []string{"convert", "-m", in, "-o", out, "--split-components", dir}},
		{"arg", []string{"inspect"}},
		{"unknown preset", []string{"presets", "x"}},
	}
	for _, tt := range tests {
		fails(t, exitUsage, tt.words, tt.args...)
	}
	fails(t, exitUsage, "--progress", "convert", "-m", in, "-o", out, "--progress", "loud")
	require.NoFileExists(t, out)
	fails(t, exitFailed, "no such file", "convert", "-m", filepath.Join(dir, "nope.safetensors"), "-o", out)
	fails(t, exitFailed, "nope", "convert", "-m", in, "-o", filepath.Join(dir, "nope", "out.gguf"))
}

func TestBadCPUSetting(t *testing.T) {
	t.Setenv("SDTOOL_CPU", "abacus")
	fails(t, exitUsage, "SDTOOL_CPU", "version")
}

// Every command has a short text, an example, and the exit codes in its help.
func TestHelp(t *testing.T) {
	root := newRoot(&app{})
	root.InitDefaultCompletionCmd()
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		for _, sub := range cmd.Commands() {
			if sub.Name() == "help" || len(path) > 0 && path[0] == "completion" {
				continue
			}
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
		if len(path) > 0 && path[0] == "completion" {
			return
		}
		require.NotEmpty(t, cmd.Short, path)
		if cmd.Runnable() {
			require.NotEmpty(t, cmd.Example, path)
		}
		r := ok(t, append(path, "--help")...)
		for _, code := range []string{"0    done", "1    failed", "2    wrong usage", "130  interrupted"} {
			require.Contains(t, r.stdout, code, path)
		}
	}
	walk(root, nil)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.NotEmpty(t, ok(t, "completion", shell).stdout)
	}
	require.Contains(t, ok(t, "version").stdout, "sdtool ")
}

func TestUnderscoresInFlags(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("text_model.encoder.layers.0.mlp.fc1.weight", 2, 32))
	for _, flag := range []string{"--clip_l", "--clip-l"} {
		out := filepath.Join(dir, "out.gguf")
		ok(t, "convert", flag, in, "-o", out, "--overwrite", "--tensor_type_rules", "fc1=q8_0")
		require.Equal(t, map[string]string{"text_encoders.clip_l.transformer.text_model.encoder.layers.0.mlp.fc1.weight": "q8_0"}, types(t, out))
	}
}

func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a.weight", 4, 64), rampTensor("a.bias", 64))
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", in, "-o", out, "--type", "q8_0", "--preset", "flux", "--dry-run", "--json")
	var plan planJSON
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &plan))
	require.NoFileExists(t, out)
	require.NotEmpty(t, plan.Rules)
	require.Len(t, plan.Outputs, 1)
	byName := map[string]planTensor{}
	for _, x := range plan.Outputs[0].Tensors {
		byName[x.Name] = x
	}
	require.Equal(t, "q8_0", byName["a.weight"].To)
	require.EqualValues(t, 272, byName["a.weight"].Bytes)
	require.Equal(t, "f32", byName["a.bias"].To)
	require.Equal(t, "rule", byName["a.bias"].Reason)

	ok(t, "convert", "-m", in, "-o", out, "--type", "q8_0", "--preset", "flux")
	info, err := os.Stat(out)
	require.NoError(t, err)
	require.Equal(t, plan.Outputs[0].Size, info.Size())
}

func TestProgressAndQuiet(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a.weight", 4, 64))
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", in, "-o", out, "--type", "q8_0", "--progress", "json")
	var line progressLine
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &line))
	require.Equal(t, "done", line.Event)
	require.EqualValues(t, 272, line.Done)
	require.Equal(t, line.Total, line.Done)
	r = ok(t, "convert", "-m", in, "-o", out, "--overwrite", "--quiet")
	require.Empty(t, r.stdout+r.stderr)
	r = ok(t, "convert", "-m", in, "-o", out, "--overwrite", "-v")
	require.Contains(t, r.stdout, "f32 → f32")
}

// Names from files cannot steer the terminal.
func TestCleanOutput(t *testing.T) {
	require.Equal(t, `a\x1b[31mb`, clean("a\x1b[31mb"))
	require.Equal(t, `a\u202eb\xff`, clean("a\u202eb\xff"))
	require.Equal(t, "模型 é", clean("模型 é"))
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("evil\x1b[2J\n.weight", 2, 32))
	for _, args := range [][]string{{"inspect", "--tensors", in}, {"convert", "-m", in, "--dry-run"}} {
		r := ok(t, args...)
		require.NotContains(t, r.stdout+r.stderr, "\x1b")
	}
}

func TestInspectJSON(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.gguf"), map[string]string{"general.architecture": "flux"}, rampTensor("a.weight", 4, 64))
	var view inspectJSON
	require.NoError(t, json.Unmarshal([]byte(ok(t, "inspect", "--json", in).stdout), &view))
	require.Equal(t, "gguf", view.Format)
	require.Equal(t, 3, view.Version)
	require.Equal(t, 1, view.Count)
	require.Equal(t, []int64{4, 64}, view.Tensors[0].Shape)
	require.EqualValues(t, 1024, view.Tensors[0].Size)
	require.NotNil(t, view.Tensors[0].Offset)
	require.Equal(t, "flux", view.Metadata["general.architecture"])
}

// Files that are something else are named for what they are.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	model := writeFile(t, filepath.Join(dir, "model.safetensors"), nil, rampTensor("w", 2, 32))
	junk := filepath.Join(dir, "junk.bin")
	require.NoError(t, os.WriteFile(junk, bytes.Repeat([]byte{0xa7, 0x13}, 500), 0o666))
	empty := filepath.Join(dir, "empty.txt")
	require.NoError(t, os.WriteFile(empty, nil, 0o666))
	fails(t, exitFailed, "this is a safetensors file", "imatrix", "show", model)
	fails(t, exitFailed, "not a model file", "inspect", junk)
	fails(t, exitUsage, "the table ends without a rule", "rename", "--map", empty, model, filepath.Join(dir, "o.safetensors"))
	fails(t, exitUsage, "give the input with -m", "convert", model, "x.gguf")
	fails(t, exitUsage, "want one of f32, f16", "convert", "-m", model, "-o", filepath.Join(dir, "o.gguf"), "--type", "q9")
	fails(t, exitUsage, "no such command", "help", "nosuch")
	fails(t, exitFailed, "'sdtool checksum FILE' writes them", "checksum", model, "--check")
}

// The last line of --progress=json tells how it ended.
func TestProgressJSONEnds(t *testing.T) {
	for want, err := range map[string]error{"done": nil, "failed": os.ErrClosed, "interrupted": context.Canceled} {
		var text bytes.Buffer
		p := (&app{stderr: &text}).newProgress("json", "convert")
		p.set(1, 2, "w")
		p.close(err)
		var line progressLine
		require.NoError(t, json.Unmarshal(text.Bytes(), &line), text.String())
		require.Equal(t, want, line.Event)
		require.EqualValues(t, 1, line.Done)
	}
}

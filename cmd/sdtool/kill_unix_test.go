//go:build unix

package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A killed conversion leaves the old output or the whole new one, and at most its
// own temporary file, which the next run takes over. SDTOOL_KILLS sets how often
// (the nightly run takes 200).
func TestKilledAtAnyInstant(t *testing.T) {
	kills := 50
	if n, err := strconv.Atoi(os.Getenv("SDTOOL_KILLS")); err == nil {
		kills = n
	}
	if testing.Short() {
		kills = 5
	}
	dir := t.TempDir()
	var tensors []raw
	for i := range 40 {
		tensors = append(tensors, rampTensor("blk."+strconv.Itoa(i)+".weight", 64, 4096))
	}
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, tensors...)
	before, err := os.ReadFile(in)
	require.NoError(t, err)
	out, reference := filepath.Join(dir, "out.gguf"), filepath.Join(dir, "reference.gguf")
	args := func(path string) []string {
		return []string{"convert", "-m", in, "-o", path, "--type", "q5_K", "--overwrite", "--quiet", "--no-provenance"}
	}
	start := time.Now()
	require.NoError(t, exec.Command(built(t), args(reference)...).Run())
	took := time.Since(start)
	want, err := os.ReadFile(reference)
	require.NoError(t, err)
	old := []byte("the old output")
	rng := rand.New(rand.NewPCG(1, 2))
	killed := 0
	for range kills {
		require.NoError(t, os.WriteFile(out, old, 0o600))
		cmd := exec.Command(built(t), args(out)...)
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(rng.Float64() * float64(took)))
		_ = cmd.Process.Kill() // it may have ended
		if cmd.Wait() != nil {
			killed++
		}
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		require.True(t, bytes.Equal(got, old) || bytes.Equal(got, want), "%d bytes, neither the old nor the new output", len(got))
		for _, name := range inFolder(t, dir) {
			require.True(t, name == "in.safetensors" || name == "out.gguf" || name == "reference.gguf" || strings.HasSuffix(name, ".sdtool-tmp"), name)
		}
	}
	t.Logf("%d of %d runs killed before they ended", killed, kills)
	require.NoError(t, exec.Command(built(t), args(out)...).Run())
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	require.True(t, bytes.Equal(got, want))
	require.ElementsMatch(t, []string{"in.safetensors", "out.gguf", "reference.gguf"}, inFolder(t, dir))
	after, err := os.ReadFile(in)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "the input has changed")
}

func inFolder(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Eight conversions in one folder do not get into each other's way.
func TestManyConversionsAtOnce(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a.weight", 64, 1024), rampTensor("b.weight", 64, 1024))
	var running []*exec.Cmd
	for i := range 8 {
		cmd := exec.Command(built(t), "convert", "-m", in, "-o", filepath.Join(dir, strconv.Itoa(i)+".gguf"), "--type", "q4_K", "--quiet", "--no-provenance")
		require.NoError(t, cmd.Start())
		running = append(running, cmd)
	}
	for _, cmd := range running {
		require.NoError(t, cmd.Wait())
	}
	first := contents(t, filepath.Join(dir, "0.gguf"))
	for i := range 8 {
		require.Equal(t, first, contents(t, filepath.Join(dir, strconv.Itoa(i)+".gguf")))
	}
	require.Len(t, inFolder(t, dir), 9)
}

// Of many conversions to one output, those that cannot have it are refused
// cleanly, and the output is whole.
func TestManyConversionsToOneOutput(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a.weight", 256, 4096))
	out := filepath.Join(dir, "out.gguf")
	var running []*exec.Cmd
	var errs []*bytes.Buffer
	for range 6 {
		cmd := exec.Command(built(t), "convert", "-m", in, "-o", out, "--type", "q4_K", "--quiet", "--no-provenance", "--overwrite")
		var b bytes.Buffer
		cmd.Stderr = &b
		require.NoError(t, cmd.Start())
		running, errs = append(running, cmd), append(errs, &b)
	}
	succeeded := 0
	for i, cmd := range running {
		if cmd.Wait() == nil {
			succeeded++
			continue
		}
		require.Contains(t, errs[i].String(), "another sdtool is writing it")
	}
	require.Positive(t, succeeded)
	ok(t, "verify", out, "--against", in, "--type", "q4_K", "--strict")
	require.Len(t, inFolder(t, dir), 2)
}

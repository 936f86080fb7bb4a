//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A conversion that was killed goes on where it was and gives the same file.
func TestResumeAfterKill(t *testing.T) {
	dir := t.TempDir()
	var tensors []raw
	for i := range 60 {
		tensors = append(tensors, rampTensor("blk."+strconv.Itoa(i)+".weight", 64, 4096))
	}
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, tensors...)
	reference, out := filepath.Join(dir, "reference.gguf"), filepath.Join(dir, "out.gguf")
	args := func(path string, more ...string) []string {
		return append([]string{"convert", "-m", in, "-o", path, "--type", "iq3_s", "--no-provenance"}, more...)
	}
	ok(t, args(reference)...)
	want, err := os.ReadFile(reference)
	require.NoError(t, err)
	journal := filepath.Join(dir, ".out.gguf.sdtool-journal")
	cmd := exec.Command(built(t), args(out, "--resume")...)
	require.NoError(t, cmd.Start())
	for { // until something is written
		if info, err := os.Stat(journal); err == nil && info.Size() > 400 {
			break
		}
		if _, err := os.Stat(out); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_ = cmd.Process.Kill()
	if cmd.Wait() == nil {
		t.Skip("it had ended before it could be killed")
	}
	require.NoFileExists(t, out)
	fails(t, exitFailed, "begun from other inputs or options", "convert", "-m", in, "-o", out, "--type", "iq3_xxs", "--no-provenance", "--resume")
	r := ok(t, args(out, "--resume")...)
	require.Contains(t, r.stdout, "had been written by an earlier run")
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.ElementsMatch(t, []string{"in.safetensors", "out.gguf", "reference.gguf"}, inFolder(t, dir))
}

//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

// A signal in the middle of the work ends the process with 130; the old output
// is untouched and no temporary file is left.
func TestSignal(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the built program")
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.safetensors"), filepath.Join(dir, "out.gguf")
	sparseFile(t, in, []tensor.Info{{Name: "big", DType: tensor.F16, Shape: []int64{16384, 16384}}})
	require.NoError(t, os.WriteFile(out, []byte("old"), 0o600))
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		var errOut bytes.Buffer
		cmd := exec.Command(built(t), "convert", "-m", in, "-o", out, "--type", "q4_K", "--overwrite", "-t", "1")
		cmd.Stderr = &errOut
		require.NoError(t, cmd.Start())
		temp := filepath.Join(dir, ".out.gguf.sdtool-tmp")
		require.Eventually(t, func() bool { return exists(temp) }, 30*time.Second, time.Millisecond)
		require.NoError(t, cmd.Process.Signal(sig))
		err := cmd.Wait()
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit), "it was not interrupted: %v", err)
		require.Equal(t, exitInterrupted, exit.ExitCode(), errOut.String())
		require.Contains(t, errOut.String(), "interrupted")
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, "old", string(got))
		require.False(t, exists(temp))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

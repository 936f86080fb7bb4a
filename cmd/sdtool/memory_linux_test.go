package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

// peak runs the built program and returns its largest resident size in bytes.
//
// The kernel's own figure in rusage will not do: it starts from that of the
// process that forked, which here is the test.
func peak(t *testing.T, args ...string) int64 {
	t.Helper()
	cmd := exec.Command(built(t), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	most := int64(0)
	for {
		select {
		case err := <-done:
			require.NoError(t, err, "%s", out.Bytes())
			require.Positive(t, most)
			return most
		case <-time.After(5 * time.Millisecond):
			most = max(most, highWater(cmd.Process.Pid))
		}
	}
}

// highWater returns the largest resident size that a process has had; 0 if it is gone.
func highWater(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

// Peak memory stays within the budget and 64 MiB, also where one tensor is far
// larger (field fault 65).
func TestFault065MemoryBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a sparse file of 4 GiB")
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	infos := []tensor.Info{{Name: "big.weight", DType: tensor.F32, Shape: []int64{1 << 15, 1 << 15}}}
	var tensors []raw
	for i := range 200 {
		x := rampTensor(string(rune('a'+i%26))+string(rune('a'+i/26))+".weight", 16, 512)
		infos, tensors = append(infos, x.Info), append(tensors, x)
	}
	writeSparse(t, in, infos, tensors, 1)
	const slack = 64 << 20
	tests := []struct {
		budget string
		bytes  int64
		args   []string
	}{
		{"64MiB", 64 << 20, []string{"--type", "q8_0"}},
		{"64MiB", 64 << 20, []string{"--type", "q4_0", "-t", "16"}},
		{"256MiB", 256 << 20, []string{"--type", "q8_0", "-t", "16"}},
	}
	for _, tt := range tests {
		args := append([]string{"convert", "-m", in, "-o", filepath.Join(dir, "out.gguf"), "--overwrite", "--max-memory", tt.budget}, tt.args...)
		got := peak(t, args...)
		t.Logf("%q: peak %d MiB", args[6:], got>>20)
		require.LessOrEqual(t, got, tt.bytes+slack, args)
	}
}

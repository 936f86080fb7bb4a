package main

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

// peak runs the built program and returns its largest resident size in bytes.
func peak(t *testing.T, args ...string) int64 {
	t.Helper()
	cmd := exec.Command(built(t), args...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	usage, is := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	require.True(t, is)
	return usage.Maxrss << 10
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

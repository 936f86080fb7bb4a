//go:build unix

package tensor_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

// TestPipesAndDevicesAreNotOpened would hang if a pipe were opened.
func TestPipesAndDevicesAreNotOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, _, err := tensor.OpenRegular(pipe)
	assert.ErrorIs(t, err, tensor.ErrNotRegular)
	assert.ErrorContains(t, err, "it is a pipe")
	_, _, err = tensor.OpenRegular("/dev/null")
	assert.ErrorIs(t, err, tensor.ErrNotRegular)
}

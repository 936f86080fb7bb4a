package synth_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

func writeF32(dst []byte, src []float32) error {
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
	return nil
}

func sum(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	h := sha256.Sum256(raw)
	return hex.EncodeToString(h[:])
}

// The sums are those of the files that mkmodel.py and mkimatrix.py wrote for
// "flux --depth 1 --hidden 512 --dtype F32".
func TestSameFilesAsPython(t *testing.T) {
	dir := t.TempDir()
	model, matrix := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "m.dat")
	require.NoError(t, synth.Write(model, synth.Flux(1, 512), tensor.F32, writeF32))
	require.Equal(t, "c2f23ff7dd1c010aa54255234344ad6133b1089a4e725890772c7bc9723ab908", sum(t, model))
	require.NoError(t, synth.WriteImatrix(matrix, "model.diffusion_model.", synth.Flux(1, 512)))
	require.Equal(t, "1e41feeddef48de5894af94e35a98ae1bcd62f940ec9a4fd0fd4059edd3a4350", sum(t, matrix))
}

func TestSD15HasItsShapes(t *testing.T) {
	n := int64(0)
	for _, info := range synth.SD15() {
		e, err := info.Elements()
		require.NoError(t, err)
		n += e
	}
	require.Len(t, synth.SD15(), len(synth.UNet15())+len(synth.CLIPL())+248)
	require.Equal(t, int64(1066), n/1e6)
}

package safetensors_test

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// write lays a file out and fills each tensor with bytes made from its index.
func write(t *testing.T, metadata map[string]string, infos ...tensor.Info) (path string, data [][]byte) {
	t.Helper()
	l, err := safetensors.NewLayout(metadata, infos)
	require.NoError(t, err)
	file := make([]byte, l.Size)
	copy(file, l.Header)
	for i, info := range infos {
		n, err := info.Bytes()
		require.NoError(t, err)
		b := file[l.Offsets[i] : l.Offsets[i]+n]
		r := rand.NewChaCha8([32]byte{byte(i)})
		r.Read(b)
		data = append(data, b)
	}
	path = filepath.Join(t.TempDir(), "m.safetensors")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	return path, data
}

func readAll(t *testing.T, x tensor.Tensor) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(x.Source, 0, x.Source.Size()))
	require.NoError(t, err)
	return b
}

func open(t *testing.T, path string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func TestWhatIsLaidOutIsRead(t *testing.T) {
	var infos []tensor.Info
	for _, d := range tensor.All() {
		if _, ok := d.Safetensors(); ok {
			infos = append(infos, tensor.Info{Name: d.String() + ` "é\` + "\n", DType: d, Shape: []int64{2, 3, 4}})
		}
	}
	infos = append(infos, tensor.Info{Name: "scalar", DType: tensor.F32, Shape: []int64{}},
		tensor.Info{Name: "empty", DType: tensor.F64, Shape: []int64{0, 4}},
		tensor.Info{Name: "five", DType: tensor.U8, Shape: []int64{1, 2, 1, 3, 1}})
	metadata := map[string]string{"format": "pt", "a": "line\nbreak", "": "é"}
	path, data := write(t, metadata, infos...)
	f := open(t, path)
	assert.Equal(t, metadata, f.Metadata)
	require.Len(t, f.Tensors, len(infos))
	for i, x := range f.Tensors {
		assert.Equal(t, infos[i], x.Info)
		assert.Equal(t, data[i], readAll(t, x), x.Name)
	}
	assert.NoError(t, f.Check())
}

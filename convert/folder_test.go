package convert

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// model writes a safetensors file with one tensor of the given name.
func model(t *testing.T, path, name string) {
	t.Helper()
	layout, err := safetensors.NewLayout(nil, []tensor.Info{{Name: name, DType: tensor.F32, Shape: []int64{2}}})
	require.NoError(t, err)
	buf := make([]byte, layout.Size)
	copy(buf, layout.Header)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, buf, 0o600))
}

func touch(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// openNames opens a path and returns the names of its tensors.
func openNames(t *testing.T, path string, o OpenOptions) ([]string, error) {
	t.Helper()
	cp, err := Open(path, o)
	if err != nil {
		require.Nil(t, cp)
		return nil, err
	}
	var names []string
	for _, x := range cp.Tensors {
		names = append(names, x.Name)
	}
	require.NoError(t, cp.Check())
	require.NoError(t, cp.Close())
	return names, nil
}

func TestFolders(t *testing.T) {
	tests := []struct {
		name    string
		files   map[string]string // path → tensor
		other   map[string]string // path → text
		variant string
		want    []string
		err     string
	}{
		{"one file", map[string]string{"a.safetensors": "a"}, nil, "", []string{"a"}, ""},
		{"two files", map[string]string{"a.safetensors": "a", "b.safetensors": "b"}, nil, "", nil, "holds several models"},
		{"nothing", nil, map[string]string{"readme.txt": "x"}, "", nil, "no model found"},
		{"with a variant beside", map[string]string{"model.safetensors": "a", "model.fp16.safetensors": "b"}, nil, "", []string{"a"}, ""},
		{"the variant", map[string]string{"model.safetensors": "a", "model.fp16.safetensors": "b"}, nil, "fp16", []string{"b"}, ""},
		{"the variant is not there", map[string]string{"model.safetensors": "a"}, nil, "fp16", []string{"a"}, ""},
		{"leftovers of training", map[string]string{"model.safetensors": "a"}, map[string]string{"optimizer.bin": "x", ".hidden.safetensors": "x"}, "", []string{"a"}, ""},
		{"index", map[string]string{"m-1.safetensors": "a", "m-2.safetensors": "b", "stray.safetensors": "c"},
			map[string]string{"m.safetensors.index.json": `{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}`}, "", []string{"a", "b"}, ""},
		{"index of a missing shard", map[string]string{"m-1.safetensors": "a"},
			map[string]string{"m.safetensors.index.json": `{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}`}, "", nil, "m-2.safetensors"},
		{"pipeline", map[string]string{"transformer/diffusion_pytorch_model.safetensors": "a", "vae/diffusion_pytorch_model.safetensors": "b", "text_encoder_3/model.safetensors": "c", "safety_checker/model.safetensors": "d"},
			nil, "", []string{"transformer.a", "vae.b", "te3.c"}, ""},
		{"pipeline without files", nil, map[string]string{"model_index.json": `{"unet":["diffusers","U"]}`}, "", nil, "no model found"},
		{"pipeline with a bad list", nil, map[string]string{"model_index.json": `[`}, "", nil, "model_index.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for path, name := range tt.files {
				model(t, filepath.Join(dir, filepath.FromSlash(path)), name)
			}
			for path, text := range tt.other {
				touch(t, filepath.Join(dir, filepath.FromSlash(path)), text)
			}
			got, err := openNames(t, dir, OpenOptions{Variant: tt.variant})
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

// A set of torch files is read by its index, and only within its folder.
func TestTorchIndex(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join("..", "torch", "testdata", "trainer.ckpt"))
	require.NoError(t, err)
	touch(t, filepath.Join(dir, "pytorch_model-1.bin"), string(data))
	index := filepath.Join(dir, "pytorch_model.bin.index.json")
	touch(t, index, `{"weight_map":{"a":"pytorch_model-1.bin"}}`)
	got, err := openNames(t, dir, OpenOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, got)

	touch(t, index, `{"weight_map":{"a":"pytorch_model-1.bin","b":"pytorch_model-2.bin"}}`)
	_, err = openNames(t, dir, OpenOptions{})
	require.ErrorContains(t, err, "pytorch_model-2.bin")
	touch(t, index, `{"weight_map":{"a":"../x.bin"}}`)
	_, err = openNames(t, dir, OpenOptions{})
	require.ErrorContains(t, err, "outside its folder")
	touch(t, filepath.Join(dir, "pytorch_model-2.bin"), string(data))
	touch(t, index, `{"weight_map":{"a":"pytorch_model-1.bin","b":"pytorch_model-2.bin"}}`)
	_, err = openNames(t, dir, OpenOptions{})
	require.ErrorContains(t, err, `"a" twice`)
	touch(t, index, `{"weight_map":{"a":"pytorch_model.bin.index.json"}}`)
	_, err = openNames(t, index, OpenOptions{})
	require.ErrorContains(t, err, "outside its folder")
}

func TestOpenWhatIsNoFile(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "nope"), OpenOptions{})
	require.ErrorIs(t, err, os.ErrNotExist)
	if _, err := os.Stat(os.DevNull); err == nil {
		_, err = Open(os.DevNull, OpenOptions{})
		require.True(t, errors.Is(err, tensor.ErrNotRegular), "%v", err)
	}
}

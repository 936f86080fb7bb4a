package torch_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/torch"
)

// fixture is the path of a file that testdata/make.py has made with torch.
func fixture(name string) string { return filepath.Join("testdata", name) }

func open(t testing.TB, path string) *torch.File {
	t.Helper()
	f, err := torch.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func readAll(t testing.TB, x tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Source.Size())
	n, err := x.Source.ReadAt(b, 0)
	require.NoError(t, err, x.Name)
	require.Len(t, b, n)
	return b
}

// describe says of a tensor what want.json says: dtype, shape, hash.
func describe(t *testing.T, x tensor.Tensor) []any {
	t.Helper()
	shape := []any{}
	for _, n := range x.Shape {
		shape = append(shape, float64(n))
	}
	sum := sha256.Sum256(readAll(t, x))
	return []any{x.DType.String(), shape, hex.EncodeToString(sum[:])}
}

func TestFilesOfTorchAreReadAsTorchReadsThem(t *testing.T) {
	var wants map[string]map[string][]any
	b, err := os.ReadFile(fixture("want.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &wants))
	for name, want := range wants {
		t.Run(name, func(t *testing.T) {
			f := open(t, fixture(name))
			got := make(map[string][]any)
			for _, x := range f.Tensors {
				got[x.Name] = describe(t, x)
				n, err := x.Bytes()
				require.NoError(t, err)
				assert.Equal(t, n, x.Source.Size(), x.Name)
			}
			assert.Equal(t, want, got)
			assert.NoError(t, f.Check())
		})
	}
}

func TestTensorsInCOrderAreSections(t *testing.T) {
	sections := map[string]bool{}
	for _, x := range open(t, fixture("views.pt")).Tensors {
		_, sections[x.Name] = x.Source.(*tensor.Section)
	}
	assert.Equal(t, map[string]bool{"base": true, "shared": true, "slice": false, "transposed": false, "row": true, "step": false,
		"expanded": false, "one": true, "scalar": true, "empty": true, "empty slice": true, "ones": false, "channels_last": false,
		"five": false, "parameter": true, "buffer": true}, sections)
}

func TestFault066CheckpointsOfTrainers(t *testing.T) {
	f := open(t, fixture("trainer.ckpt"))
	assert.Equal(t, "state_dict", f.Dict)
	assert.Equal(t, []torch.Skipped{
		{Name: "epoch", What: "an int"},
		{Name: "best", What: `a Python object of "numpy._core.multiarray.scalar"`},
		{Name: "path", What: `a Python object of "pathlib.PurePosixPath"`},
		{Name: "args", What: `a Python object of "argparse.Namespace"`},
		{Name: "loops", What: "a dict"},
		{Name: "big", What: "bytes"},
		{Name: "rng_state", What: "a tensor"},
		{Name: "callbacks", What: "a dict"},
		{Name: "ema", What: `a Python object of "framework.callbacks.Holder" with tensors in it`},
		{Name: "optimizer_states", What: "a list with tensors in it"},
		{Name: "num_updates", What: "an int"},
	}, f.Skipped)
	assert.Equal(t, "params_ema", open(t, fixture("upscaler.pth")).Dict)
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	for _, c := range []struct{ file, msg string }{
		{"hidden.pt", `"hidden": its data is inside a Python object of "framework.callbacks.Holder"`},
		{"sparse.pt", `"sparse": its data is inside a Python object of "torch._utils._rebuild_sparse_tensor"`},
		{"quantized.pt", `"q": its data is inside a Python object of "torch._utils._rebuild_qtensor"`},
		{"module.pt", `its data is inside a Python object of "torch.nn.modules.linear.Linear"`},
		{"complex128.pt", `tensor "z": found a tensor of "ComplexDoubleStorage"`},
		{"conj.pt", `tensor "a": found a tensor that cannot be read: its conj bit is set`},
		{"no_tensors.pt", "no tensors found in its dict of 1 entries"},
		{"list.pt", "the file holds a list, want a dict"},
		{"script.pt", "TorchScript"},
		{"big_endian.pt", `its data is in byte order "big"`},
		{"deflated_storage.pt", "is compressed (method 8)"},
	} {
		t.Run(c.file, func(t *testing.T) {
			f, err := torch.Open(fixture(c.file))
			assert.Nil(t, f)
			require.ErrorContains(t, err, c.msg)
			assert.ErrorContains(t, err, fixture(c.file))
		})
	}
	_, err := torch.Open(fixture("no_tensors.pt"))
	assert.ErrorIs(t, err, torch.ErrNoTensors)
	var global *torch.GlobalError
	_, err = torch.Open(fixture("sparse.pt"))
	require.ErrorAs(t, err, &global)
	assert.Equal(t, torch.GlobalError{Path: fixture("sparse.pt"), Name: "torch._utils._rebuild_sparse_tensor", Tensor: "sparse"}, *global)
}

func TestForeignFilesAreNamed(t *testing.T) {
	tar := make([]byte, 1024)
	copy(tar[257:], "ustar")
	for _, c := range []struct {
		name string
		file []byte
		msg  string
	}{
		{"empty", nil, "the file is empty"},
		{"git lfs", []byte("version https://git-lfs.github.com/spec/v1\n"), "Git LFS"},
		{"web page", []byte("<html>"), "HTML"},
		{"gguf", []byte("GGUF\x03\x00\x00\x00"), "a GGUF file"},
		{"tar", tar, "a tar archive"},
		{"zeros", make([]byte, 100), "nothing but zero bytes"},
		{"other", []byte("hello"), "neither a zip archive nor a pickle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := torch.Open(save(t, c.file))
			var fe *torch.FormatError
			require.ErrorAs(t, err, &fe)
			assert.Equal(t, torch.KindForeign, fe.Kind)
			assert.ErrorContains(t, err, c.msg)
		})
	}
	_, err := torch.Open(t.TempDir())
	assert.ErrorIs(t, err, tensor.ErrNotRegular)
}

func save(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.pt")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

// TestFilesCutOrBentAnywhereDoNoHarm cuts every fixture at every length and
// changes every byte of some.
func TestFilesCutOrBentAnywhereDoNoHarm(t *testing.T) {
	for _, name := range []string{"upscaler.pth", "views_legacy.pt"} {
		whole, err := os.ReadFile(fixture(name))
		require.NoError(t, err)
		for n := range whole {
			_, err := torch.OpenReaderAt(bytes.NewReader(whole[:n]), int64(n), "x")
			require.Error(t, err, "%s cut to %d bytes", name, n)
		}
		for i := range whole {
			bent := slices.Clone(whole)
			for _, c := range []byte{0, 0xff, whole[i] ^ 1, whole[i] ^ 0x80} {
				bent[i] = c
				f, err := torch.OpenReaderAt(bytes.NewReader(bent), int64(len(bent)), "x")
				if err != nil {
					continue
				}
				for _, x := range f.Tensors {
					if x.Source.Size() < 1<<20 {
						readAll(t, x)
					}
				}
			}
		}
	}
}

// repack makes an archive of members, in order.
func repack(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		out, err := w.CreateHeader(&zip.FileHeader{Name: m.name, Method: m.method})
		require.NoError(t, err)
		_, err = out.Write(m.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

type member struct {
	name   string
	method uint16
	data   []byte
}

// pickleOf returns data.pkl of a fixture.
func pickleOf(t testing.TB, name string) []byte {
	t.Helper()
	r, err := zip.OpenReader(fixture(name))
	require.NoError(t, err)
	defer r.Close()
	for _, m := range r.File {
		if filepath.Base(m.Name) == "data.pkl" {
			in, err := m.Open()
			require.NoError(t, err)
			b, err := io.ReadAll(in)
			require.NoError(t, err)
			return b
		}
	}
	t.Fatal("no data.pkl in ", name)
	return nil
}

func TestArchives(t *testing.T) {
	pickle := pickleOf(t, "upscaler.pth")
	storage := make([]byte, 8)
	good := []member{{"m/data.pkl", 0, pickle}, {"m/data/0", 0, storage}, {"m/data/1", 0, storage}}
	f, err := torch.Open(save(t, repack(t, good...)))
	require.NoError(t, err, "an archive of another zip writer")
	require.NoError(t, f.Close())
	f, err = torch.Open(save(t, repack(t, member{"data.pkl", 0, pickle}, member{"data/0", 0, storage}, member{"data/1", 0, storage})))
	require.NoError(t, err, "an archive without a folder")
	require.NoError(t, f.Close())
	for _, c := range []struct {
		name    string
		members []member
		kind    torch.ErrorKind
		msg     string
	}{
		{"no pickle", good[1:], torch.KindForeign, "no data.pkl"},
		{"two pickles", append(good[:3:3], member{"n/data.pkl", 0, pickle}), torch.KindZip, "both"},
		{"member twice", append(good[:3:3], good[1]), torch.KindDuplicate, `two members "m/data/0"`},
		{"storage missing", good[:2], torch.KindStorage, `storage "1": the archive has no member "m/data/1"`},
		{"storage short", []member{good[0], good[1], {"m/data/1", 0, storage[:7]}}, torch.KindStorage, `storage "1": found 7 bytes, want 8`},
		{"storage elsewhere", []member{good[0], good[1], {"m/data/../data/1", 0, storage}}, torch.KindStorage, "no member"},
		{"slip", []member{{"../../etc/data.pkl", 0, pickle}}, torch.KindStorage, `no member "../../etc/data/`},
		{"big-endian", append(good[:3:3], member{"m/byteorder", 0, []byte("big")}), torch.KindEndian, `"big"`},
		{"long byteorder", append(good[:3:3], member{"m/byteorder", 0, make([]byte, 65)}), torch.KindLimit, "65 bytes"},
		{"script", append(good[:3:3], member{"m/constants.pkl", 0, nil}), torch.KindForeign, "TorchScript"},
		{"bomb", []member{{"m/data.pkl", 8, make([]byte, 100<<20)}}, torch.KindLimit, "data.pkl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := torch.Open(save(t, repack(t, c.members...)))
			var fe *torch.FormatError
			require.ErrorAs(t, err, &fe)
			assert.Equal(t, c.kind, fe.Kind, err.Error())
			assert.ErrorContains(t, err, c.msg)
		})
	}
}

func TestAFileThatChangesIsNoticed(t *testing.T) {
	whole, err := os.ReadFile(fixture("upscaler.pth"))
	require.NoError(t, err)
	path := save(t, whole)
	f := open(t, path)
	require.NoError(t, f.Check())
	require.NoError(t, os.Truncate(path, 100))
	var changed *tensor.ChangedError
	require.ErrorAs(t, f.Check(), &changed)
	_, err = f.Tensors[0].Source.ReadAt(make([]byte, 8), 0)
	require.ErrorAs(t, err, &changed)
}

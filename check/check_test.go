package check

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

func mem(name string, data ...byte) tensor.Tensor {
	return tensor.Tensor{Info: tensor.Info{Name: name, DType: tensor.U8, Shape: []int64{int64(len(data))}}, Source: bytes.NewReader(data)}
}

func TestSumsKnowEveryChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	require.NoError(t, os.WriteFile(path, []byte("abc"), 0o600))
	s, err := Sum(context.Background(), []tensor.Tensor{mem("a", 1, 2), mem("b", 3), mem("e")}, []string{path}, Options{Threads: 3})
	require.NoError(t, err)
	// The figures are those of sha256sum.
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", s.Files[0].SHA256)
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", s.Tensors[2].SHA256)
	require.Empty(t, s.Against(s))
	var out bytes.Buffer
	require.NoError(t, s.Write(&out))
	back, err := parseSums(out.Bytes())
	require.NoError(t, err)
	require.Empty(t, s.Against(back))
	back.Tensors[0].SHA256 = "x"
	back.Tensors[1].Name = "c"
	back.Files[0].Size = 4
	var kinds []string
	for _, m := range s.Against(back) {
		kinds = append(kinds, m.Name+": "+m.Msg)
	}
	require.Equal(t, []string{"m: found 3 bytes, recorded 4", "a: its bytes differ", "b: not recorded", "c: missing"}, kinds)
}

func TestDiffFindsTheFirstByteOfLargeTensors(t *testing.T) {
	x, y := make([]byte, 3<<20), make([]byte, 3<<20)
	y[2<<20+5] = 1
	changes, err := Diff(context.Background(), Side{Tensors: []tensor.Tensor{mem("a", x...)}}, Side{Tensors: []tensor.Tensor{mem("a", y...)}}, Options{})
	require.NoError(t, err)
	require.Equal(t, []Change{{"a", "bytes", "first at byte 2097157 of 3145728"}}, changes)
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Sum(ctx, []tensor.Tensor{mem("a", 1)}, nil, Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func FuzzParseSums(f *testing.F) {
	f.Add([]byte(`{"sdtool_checksum":1,"files":[{"name":"a","size":1,"sha256":"x"}],"tensors":[{"name":"t"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := parseSums(raw); err == nil {
			s.Against(&Sums{Version: 1})
		}
	})
}

package torch

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzPickle(f *testing.F) {
	for _, seed := range []string{"", "N", "cos\nsystem\nU\x02id\x85R", "}U\x01a" + storageID(6) + "s", "](K\x01K\x02e", "ccollections\nOrderedDict\n)R}b",
		"ctorch._utils\n_rebuild_tensor_v2\n(" + storageID(6) + "K\x01(K\x02K\x02t(K\x02K\x01t\x89NtR", "K\x01q\x00h\x00\x86", "(ix\nY\n", "\x8c\x01a\x8c\x01b\x93)\x81}b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := run(string(b))
		if err == nil {
			_ = kind(v)
			holdsData(v, make(map[any]bool))
		}
	})
}

func FuzzOpen(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.*t*"))
	require.NoError(f, err)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := OpenReaderAt(bytes.NewReader(b), int64(len(b)), "fuzz")
		if err != nil {
			return
		}
		for _, x := range g.Tensors {
			want, err := x.Bytes()
			require.NoError(t, err)
			require.Equal(t, want, x.Source.Size())
			p := make([]byte, min(want, 1<<16))
			n, err := x.Source.ReadAt(p, 0)
			require.NoError(t, err)
			require.Len(t, p, n)
		}
	})
}

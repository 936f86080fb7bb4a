package gguf_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

func FuzzOpen(f *testing.F) {
	for _, c := range refusals {
		if len(c.file.b) < 4096 {
			f.Add(c.file.b)
		}
	}
	infos := []tensor.Info{{Name: "a", DType: tensor.F32, Shape: []int64{2, 3}}, {Name: "b", DType: tensor.Q4_0, Shape: []int64{2, 32}}}
	data := [][]byte{make([]byte, 24), make([]byte, 36)}
	for version := uint32(1); version <= 3; version++ {
		f.Add(encode(binary.LittleEndian, version, everyValue(), infos, data))
		f.Add(encode(binary.BigEndian, version, everyValue(), infos, data))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		g, err := gguf.OpenReaderAt(bytes.NewReader(file), int64(len(file)), "fuzz")
		if err != nil {
			return
		}
		for _, x := range g.Tensors {
			want, err := x.Bytes()
			require.NoError(t, err)
			require.Equal(t, want, x.Source.Size())
			require.LessOrEqual(t, want, int64(len(file)))
			readTensor(t, x)
		}
		for _, kv := range g.Metadata {
			_ = kv.Value.String()
		}
		relay(t, g)
	})
}

func readTensor(t *testing.T, x tensor.Tensor) {
	t.Helper()
	b := make([]byte, x.Source.Size())
	n, err := x.Source.ReadAt(b, 0)
	require.NoError(t, err)
	require.Len(t, b, n)
}

// relay lays out what was read and reads it again.
func relay(t *testing.T, g *gguf.File) {
	t.Helper()
	infos := make([]tensor.Info, len(g.Tensors))
	for i, x := range g.Tensors {
		infos[i] = x.Info
	}
	l, err := gguf.NewLayout(g.Metadata, infos, gguf.WithAxes(8))
	if err != nil || l.Size > 1<<24 {
		return
	}
	file := make([]byte, l.Size)
	copy(file, l.Header)
	again, err := gguf.OpenReaderAt(bytes.NewReader(file), l.Size, "again")
	require.NoError(t, err)
	require.Len(t, again.Tensors, len(infos))
	require.Len(t, again.Metadata, len(g.Metadata))
}

package safetensors

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

var fuzzHeaders = []string{
	`{}`, `{"__metadata__":{"a":"b","\u00e9\n":"\ud83d\ude00"}}`,
	`{"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}`,
	`{"a":{"x":[[[]]],"dtype":"F4","shape":[2],"data_offsets":[0,1]}}`,
	`{"a":{"dtype":"U8","shape":[9223372036854775807,0],"data_offsets":[0,18446744073709551615]}}`,
}

func FuzzOpen(f *testing.F) {
	for _, h := range fuzzHeaders {
		for _, n := range []int{0, 9} {
			b := append([]byte{byte(len(h)), 0, 0, 0, 0, 0, 0, 0}, h...)
			f.Add(append(b, make([]byte, n)...))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := OpenReaderAt(bytes.NewReader(b), int64(len(b)), "fuzz")
		if err != nil {
			return
		}
		infos := make([]tensor.Info, len(g.Tensors))
		for i, x := range g.Tensors {
			infos[i] = x.Info
			p := make([]byte, x.Source.Size())
			n, err := x.Source.ReadAt(p, 0)
			require.NoError(t, err)
			require.Len(t, p, n)
		}
		l, err := NewLayout(g.Metadata, infos)
		require.NoError(t, err, "what can be read can be written")
		again := make([]byte, l.Size)
		copy(again, l.Header)
		h, err := OpenReaderAt(bytes.NewReader(again), l.Size, "again")
		require.NoError(t, err)
		require.Equal(t, g.Metadata, h.Metadata)
		for i, x := range h.Tensors {
			require.Equal(t, infos[i], x.Info)
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1.5e3},"weight_map":{"a":"1.safetensors","b":"..\/2"}}`))
	f.Add([]byte(`{"weight_map":{"a":"\u0000"},"x":[true,false,null,-0.5E+3]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		weights, err := parseIndex(b, "fuzz")
		if err != nil {
			return
		}
		shardPaths("folder/fuzz", weights, indexRules{})
		// What we take, others take, with the same result.
		var other struct {
			WeightMap map[string]any `json:"weight_map"`
		}
		if json.Unmarshal(b, &other) == nil {
			for _, w := range weights {
				require.Equal(t, w.shard, other.WeightMap[w.name])
			}
		}
		require.True(t, json.Valid(b), "found valid what encoding/json does not")
	})
}

package rng_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/rng"
)

// The streams are torch's own (CPU) and numpy's of the published generator (CUDA).
func TestStreamsEqualTorch(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "cases.json"))
	require.NoError(t, err)
	var cases []struct {
		Kind  string
		Seed  uint64
		Draws [][]float32
	}
	require.NoError(t, json.Unmarshal(text, &cases))
	require.Len(t, cases, 7)
	for _, c := range cases {
		kind, err := rng.ParseKind(c.Kind)
		require.NoError(t, err)
		src := rng.New(kind, c.Seed)
		for d, want := range c.Draws {
			got := make([]float32, len(want))
			src.Normal(got)
			for i := range want {
				// Logarithms, sines and cosines of other libraries differ in the last places.
				require.InDelta(t, want[i], got[i], 4e-6, "%s seed %d, draw %d, number %d", c.Kind, c.Seed, d, i)
			}
		}
		again := make([]float32, len(c.Draws[0]))
		src.Seed(c.Seed)
		src.Normal(again)
		require.InDelta(t, c.Draws[0][0], again[0], 4e-6, "Seed starts over")
	}
}

// minstd_rand0's 10000th number is 1043618065 (C++ standard, [rand.predef]); the
// normal numbers made of it must at least be normal.
func TestEveryStreamIsNormal(t *testing.T) {
	for _, k := range rng.Kinds() {
		x := make([]float32, 1<<16)
		rng.New(k, 7).Normal(x)
		var sum, squares float64
		for _, v := range x {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		n := float64(len(x))
		require.InDelta(t, 0, sum/n, 0.02, k)
		require.InDelta(t, 1, math.Sqrt(squares/n), 0.02, k)
	}
}

func TestHowDrawsAreSplitMatters(t *testing.T) {
	one, two := make([]float32, 32), make([]float32, 32)
	rng.New(rng.CUDA, 3).Normal(one)
	s := rng.New(rng.CUDA, 3)
	s.Normal(two[:16])
	s.Normal(two[16:])
	require.Equal(t, one[:16], two[:16])
	require.NotEqual(t, one[16:], two[16:])
}

func TestKinds(t *testing.T) {
	for _, k := range rng.Kinds() {
		back, err := rng.ParseKind(k.String())
		require.NoError(t, err)
		require.Equal(t, k, back)
	}
	_, err := rng.ParseKind("dice")
	require.ErrorContains(t, err, `"dice"`)
}

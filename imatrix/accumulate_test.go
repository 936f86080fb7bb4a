package imatrix

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func randomRows(r *rand.Rand, count, cols, stride int) Rows {
	data := make([]float32, max((count-1)*stride+cols, cols))
	for i := range data {
		data[i] = float32(r.NormFloat64())
		switch r.IntN(200) {
		case 0:
			data[i] = float32(math.NaN())
		case 1:
			data[i] = float32(math.Inf(1 - 2*r.IntN(2)))
		case 2:
			data[i] = math.SmallestNonzeroFloat32
		case 3:
			data[i] = math.MaxFloat32
		}
	}
	return Rows{Data: data, Count: count, Cols: cols, Stride: stride}
}

func TestAccumulateSumsSquares(t *testing.T) {
	a := NewAccumulator()
	require.NoError(t, a.Call("w", 1, 2))
	skipped, err := a.Add("w", 1, 0, Rows{Data: []float32{1, 2, 99, 3, 4}, Count: 2, Cols: 2, Stride: 3})
	require.NoError(t, err)
	assert.Zero(t, skipped)
	s, err := a.Snapshot(Info{})
	require.NoError(t, err)
	e, err := s.Read(0)
	require.NoError(t, err)
	assert.Equal(t, []float64{10, 20}, e.Sums, "the gap between rows must not count")
	assert.Equal(t, []int64{2}, e.Counts)
	assert.Equal(t, int64(1), e.Calls)
}

func TestAccumulateKeepsSmallValuesInLongRuns(t *testing.T) {
	a := NewAccumulator()
	_, err := a.Add("w", 1, 0, Rows{Data: []float32{4096}, Count: 1, Cols: 1, Stride: 1})
	require.NoError(t, err)
	small := make([]float32, 10000)
	for i := range small {
		small[i] = 0.5
	}
	_, err = a.Add("w", 1, 0, Rows{Data: small, Count: len(small), Cols: 1, Stride: 1})
	require.NoError(t, err)
	s, _ := a.Snapshot(Info{})
	e, _ := s.Read(0)
	assert.Equal(t, 4096.0*4096+0.25*10000, e.Sums[0], "a float32 sum would have lost every one of them")
}

func TestFault056AccumulateSkipsAndCountsNonFinite(t *testing.T) {
	a := NewAccumulator()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	skipped, err := a.Add("w", 1, 0, Rows{Data: []float32{nan, 1, inf, 2, 3, -inf}, Count: 2, Cols: 3, Stride: 3})
	require.NoError(t, err)
	assert.Equal(t, int64(3), skipped)
	assert.Equal(t, map[string]int64{"w": 3}, a.Skipped())
	s, _ := a.Snapshot(Info{})
	e, _ := s.Read(0)
	assert.Equal(t, []float64{4, 10, 0}, e.Sums)
}

func TestFault058TwoWidthsForOneWeight(t *testing.T) {
	a := NewAccumulator()
	require.NoError(t, a.Call("blk.0", 1, 64))
	err := a.Call("blk.0", 1, 1)
	assert.ErrorIs(t, err, ErrWidth)
	assert.ErrorContains(t, err, `importance of "blk.0": 1 columns in this operation, expected 64`)
	_, err = a.Add("blk.0", 1, 0, Rows{Data: make([]float32, 32), Count: 1, Cols: 32, Stride: 32})
	assert.ErrorIs(t, err, ErrWidth)
}

func TestAccumulateRefusesRowsThatDoNotFit(t *testing.T) {
	a := NewAccumulator()
	for name, rows := range map[string]Rows{
		"short":    {Data: make([]float32, 7), Count: 2, Cols: 4, Stride: 4},
		"overlap":  {Data: make([]float32, 8), Count: 2, Cols: 4, Stride: 3},
		"negative": {Count: -1, Cols: 4, Stride: 4},
		"no cols":  {Data: make([]float32, 8), Count: 1},
	} {
		_, err := a.Add("w", 1, 0, rows)
		assert.Error(t, err, name)
	}
	_, err := a.Add("w", 2, 2, Rows{Data: make([]float32, 4), Count: 1, Cols: 4, Stride: 4})
	assert.ErrorContains(t, err, "matrix 2 of 2")
}

func TestAccumulatePerExpert(t *testing.T) {
	a := NewAccumulator()
	require.NoError(t, a.Call("moe", 3, 2))
	for _, expert := range []int{0, 2, 2} {
		_, err := a.Add("moe", 3, expert, Rows{Data: []float32{1, 2}, Count: 1, Cols: 2, Stride: 2})
		require.NoError(t, err)
	}
	s, _ := a.Snapshot(Info{})
	e, _ := s.Read(0)
	assert.Equal(t, []float64{1, 4, 0, 0, 2, 8}, e.Sums)
	assert.Equal(t, []int64{1, 0, 2}, e.Counts)
	assert.Equal(t, 1, e.Unseen())
	assert.Equal(t, []float32{1, 1}, e.Means(1))
}

func TestAccumulateFromManyGoroutines(t *testing.T) {
	a := NewAccumulator()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			name := string(rune('a' + g%2))
			for range 100 {
				if err := a.Call(name, 1, 3); err != nil {
					t.Error(err)
				}
				if _, err := a.Add(name, 1, 0, Rows{Data: []float32{1, 2, 3}, Count: 1, Cols: 3, Stride: 3}); err != nil {
					t.Error(err)
				}
				if _, err := a.Snapshot(Info{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, err := a.Snapshot(Info{})
	require.NoError(t, err)
	for i := range s.Headers() {
		e, _ := s.Read(i)
		assert.Equal(t, []float64{400, 1600, 3600}, e.Sums)
		assert.Equal(t, int64(400), e.Calls)
	}
}

func TestAccumulateGoesOnFromAFile(t *testing.T) {
	first, err := NewMemory(Info{}, []*Entry{
		{Header: Header{"flat", 1, 4}, Origin: OriginDat, Sums: []float64{1, 2, 3, 4}, Counts: []int64{2}, Calls: 2},
		{Header: Header{"w", 1, 2}, Sums: []float64{1, 1}, Counts: []int64{5}, Calls: 1},
	})
	require.NoError(t, err)
	a := NewAccumulator()
	require.NoError(t, a.Load(first))
	require.NoError(t, a.Call("flat", 2, 2), "a flat entry takes the weight's form")
	_, err = a.Add("flat", 2, 1, Rows{Data: []float32{1, 1}, Count: 1, Cols: 2, Stride: 2})
	require.NoError(t, err)
	require.NoError(t, a.Load(first), "loading again adds again")
	s, _ := a.Snapshot(Info{})
	flat, _ := s.Read(0)
	assert.Equal(t, []float64{2, 4, 7, 9}, flat.Sums)
	assert.Equal(t, 2, flat.Matrices)
	w, _ := s.Read(1)
	assert.Equal(t, []int64{10}, w.Counts)
}

func BenchmarkAddSquares(b *testing.B) {
	rows := randomRows(rand.New(rand.NewPCG(1, 2)), 4096, 1280, 1280)
	sums := make([]float64, rows.Cols)
	b.SetBytes(int64(4 * len(rows.Data)))
	for b.Loop() {
		addSquares(sums, rows)
	}
}

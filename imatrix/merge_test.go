package imatrix

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func memory(t *testing.T, entries ...*Entry) *Memory {
	t.Helper()
	m, err := NewMemory(Info{}, entries)
	require.NoError(t, err)
	return m
}

func dat(name string, calls int64, values ...float64) *Entry {
	return &Entry{Header: Header{name, 1, len(values)}, Origin: OriginDat, Sums: values, Counts: []int64{calls}, Calls: calls}
}

func sums(name string, count int64, values ...float64) *Entry {
	return &Entry{Header: Header{name, 1, len(values)}, Sums: values, Counts: []int64{count}, Calls: 1}
}

func readAll(t *testing.T, s Set) []*Entry {
	t.Helper()
	var out []*Entry
	for i := range s.Headers() {
		e, err := s.Read(i)
		require.NoError(t, err)
		out = append(out, e)
	}
	return out
}

func TestFault063MergeWeighsByCounts(t *testing.T) {
	m, err := Merge([]Set{memory(t, sums("w", 1, 10)), memory(t, sums("w", 3, 6))})
	require.NoError(t, err)
	e := readAll(t, m)[0]
	assert.Equal(t, []float32{4}, e.Means(0), "(10+6)/(1+3), not the mean of the means 6")
	d, err := Merge([]Set{memory(t, dat("w", 1, 10)), memory(t, dat("w", 3, 6))})
	require.NoError(t, err)
	w, err := readAll(t, d)[0].Weights(1, 1)
	require.NoError(t, err)
	assert.Equal(t, []float32{16}, w, "stored .dat values add, as the neighbour adds them")
}

func TestMergeKeepsNamesOfAnySide(t *testing.T) {
	m, err := Merge([]Set{memory(t, sums("b", 1, 1), sums("c", 1, 2)), memory(t, sums("a", 1, 3))})
	require.NoError(t, err)
	assert.Equal(t, []Header{{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}}, m.Headers())
}

func TestMergeRefusesDifferentWidths(t *testing.T) {
	_, err := Merge([]Set{memory(t, sums("w", 1, 1, 2)), memory(t, sums("w", 1, 1, 2, 3))})
	assert.ErrorIs(t, err, ErrWidth)
	assert.EqualError(t, err, `importance of "w": 3 columns in matrix 2 of the merge, expected 2`)
	four := &Entry{Header: Header{"w", 4, 1}, Sums: make([]float64, 4), Counts: make([]int64, 4)}
	two := &Entry{Header: Header{"w", 2, 2}, Sums: make([]float64, 4), Counts: make([]int64, 2)}
	_, err = Merge([]Set{memory(t, four), memory(t, two)})
	assert.ErrorIs(t, err, ErrWidth, "equal totals, different experts")
}

func TestMergeFlatWithExperts(t *testing.T) {
	experts := &Entry{Header: Header{"w", 2, 2}, Sums: []float64{1, 2, 3, 4}, Counts: []int64{1, 5}, Calls: 3}
	for _, sets := range [][]Set{{memory(t, experts), memory(t, dat("w", 2, 10, 10, 10, 10))}, {memory(t, dat("w", 2, 10, 10, 10, 10)), memory(t, experts)}} {
		m, err := Merge(sets)
		require.NoError(t, err)
		e := readAll(t, m)[0]
		assert.Equal(t, Header{"w", 2, 2}, e.Header)
		assert.Equal(t, []float64{11, 12, 13, 14}, e.Sums)
		assert.Equal(t, []int64{3, 7}, e.Counts)
		assert.Equal(t, int64(5), e.Calls)
		assert.Equal(t, OriginSums, e.Origin)
	}
}

func TestMergeOrderDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	sets := make([]Set, 6)
	for i := range sets {
		e := sums("w", int64(r.IntN(100)+1), make([]float64, 50)...)
		for j := range e.Sums {
			e.Sums[j] = math.Exp(r.NormFloat64() * 5)
		}
		sets[i] = memory(t, e)
	}
	left, err := Merge(sets)
	require.NoError(t, err)
	want := readAll(t, left)[0].Means(0)
	for range 20 {
		r.Shuffle(len(sets), func(a, b int) { sets[a], sets[b] = sets[b], sets[a] })
		k := 1 + r.IntN(4)
		first, err := Merge(sets[:k])
		require.NoError(t, err)
		rest, err := Merge(sets[k:])
		require.NoError(t, err)
		both, err := Merge([]Set{first, rest})
		require.NoError(t, err)
		for j, got := range readAll(t, both)[0].Means(0) {
			assert.InEpsilon(t, want[j], got, 2e-7, "column %d: at most the last bit of a float32", j)
		}
	}
}

func TestMergeFloat32SumsRoundsEveryStep(t *testing.T) {
	sets := []Set{memory(t, dat("w", 1, 1<<24)), memory(t, dat("w", 1, 1)), memory(t, dat("w", 1, 1))}
	exact, err := Merge(sets)
	require.NoError(t, err)
	assert.Equal(t, float64(1<<24+2), readAll(t, exact)[0].Sums[0])
	single, err := Merge(sets, Float32Sums())
	require.NoError(t, err)
	assert.Equal(t, float64(1<<24), readAll(t, single)[0].Sums[0])
}

func TestMergeInfo(t *testing.T) {
	a, _ := NewMemory(Info{Datasets: []string{"x", "y"}, ChunkCount: 3, ChunkSize: 512, Provenance: map[string]string{"model": "m", "seed": "1"}}, nil)
	b, _ := NewMemory(Info{Datasets: []string{"y", "z"}, ChunkCount: 4, Provenance: map[string]string{"model": "m", "seed": "2"}}, nil)
	m, err := Merge([]Set{a, b})
	require.NoError(t, err)
	assert.Equal(t, Info{Datasets: []string{"x", "y", "z"}, ChunkCount: 7, ChunkSize: 512, Provenance: map[string]string{"model": "m"}}, m.Info())
}

func TestWeightsOfDenseAndExperts(t *testing.T) {
	dense := sums("w", 4, 8, 16)
	w, err := dense.Weights(1, 2)
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 4}, w)
	w, err = dense.Weights(3, 2)
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 4}, w, "one row serves all matrices")

	experts := &Entry{Header: Header{"w", 2, 2}, Sums: []float64{8, 16, 0, 0}, Counts: []int64{4, 0}}
	w, err = experts.Weights(2, 2)
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 4, 1, 1}, w)

	flat := dat("w", 2, 1, 2, 3, 4)
	w, err = flat.Weights(2, 2)
	require.NoError(t, err)
	assert.Equal(t, []float32{1, 2, 3, 4}, w)

	for _, c := range []struct{ matrices, cols int64 }{{1, 2}, {3, 2}, {1, 5}} {
		_, err = flat.Weights(c.matrices, c.cols)
		assert.ErrorIs(t, err, ErrWidth, "%d matrices of %d", c.matrices, c.cols)
	}
}

func TestWeightsCompatPadsAndCuts(t *testing.T) {
	e := dat("w", 2, 5, 6, 7)
	assert.Equal(t, []float32{5, 6}, e.WeightsCompat(2))
	assert.Equal(t, []float32{5, 6, 7, 1, 1}, e.WeightsCompat(5))
}

func TestStatistics(t *testing.T) {
	values := make([]float64, 100)
	for j := range values {
		values[j] = 2
	}
	s := sums("w", 2, values...).Statistics()
	assert.InDelta(t, 1, s.Mean, 1e-12)
	assert.InDelta(t, 1, s.Entropy, 1e-12, "all columns alike")
	assert.InDelta(t, 0.01, s.Top1, 1e-12)
	assert.InDelta(t, 0.05, s.Top5, 1e-12)
	assert.Zero(t, s.Zero)

	values = make([]float64, 100)
	values[7] = 50
	s = sums("w", 1, values...).Statistics()
	assert.Equal(t, 50.0, s.Max)
	assert.Equal(t, 1.0, s.Top1)
	assert.Zero(t, s.Entropy, "one column does it all")
	assert.Equal(t, 99, s.Zero)
}

func TestCompare(t *testing.T) {
	a := memory(t, sums("same", 1, 1, 2), sums("scaled", 1, 1, 1), sums("gone", 1, 1), sums("wide", 1, 1))
	b := memory(t, sums("same", 2, 2, 4), sums("scaled", 1, 2, 2), sums("new", 1, 1, 2), sums("wide", 1, 1, 1))
	d, err := Compare(a, b)
	require.NoError(t, err)
	byName := map[string]Difference{}
	for _, x := range d {
		byName[x.Name] = x
	}
	assert.InDelta(t, 1, byName["same"].Cosine, 1e-12)
	assert.InDelta(t, 0, byName["same"].RelError, 1e-12)
	assert.InDelta(t, 1, byName["scaled"].Cosine, 1e-12)
	assert.InDelta(t, 1, byName["scaled"].RelError, 1e-12)
	assert.Equal(t, 1, byName["gone"].OnlyIn)
	assert.Equal(t, 2, byName["new"].OnlyIn)
	assert.True(t, math.IsNaN(byName["wide"].Cosine))
	assert.Equal(t, [2]int{1, 2}, byName["wide"].Width)
}

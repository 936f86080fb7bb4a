package chart_test

import (
	"bytes"
	"fmt"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/imatrix/chart"
)

func set(t *testing.T, entries, cols int) imatrix.Set {
	t.Helper()
	var list []*imatrix.Entry
	for i := range entries {
		e := &imatrix.Entry{Header: imatrix.Header{Name: fmt.Sprintf("blk.%02d<b>", i), Matrices: 1, Cols: cols}, Counts: []int64{2}, Calls: 1, Sums: make([]float64, cols)}
		for j := range e.Sums {
			e.Sums[j] = float64(1 + j%7)
		}
		list = append(list, e)
	}
	s, err := imatrix.NewMemory(imatrix.Info{}, list)
	require.NoError(t, err)
	return s
}

func TestLinesAreRelativeToTheMean(t *testing.T) {
	e := &imatrix.Entry{Header: imatrix.Header{Name: "w", Matrices: 1, Cols: 2 * chart.Bins}, Counts: []int64{1}, Calls: 1, Sums: make([]float64, 2*chart.Bins)}
	for j := range e.Sums {
		e.Sums[j] = 1
	}
	e.Sums[0], e.Sums[1] = 0, 0
	e.Sums[2], e.Sums[3] = 2, 2
	s, err := imatrix.NewMemory(imatrix.Info{}, []*imatrix.Entry{e})
	require.NoError(t, err)
	lines, err := chart.Lines(s)
	require.NoError(t, err)
	require.Equal(t, -6.0, lines[0].Cells[0])
	require.InDelta(t, 1, lines[0].Cells[1], 1e-9)
	require.InDelta(t, 0, lines[0].Cells[2], 1e-9)
}

func TestLinesAreInBuildingOrder(t *testing.T) {
	lines, err := chart.Lines(set(t, 12, 8))
	require.NoError(t, err)
	require.Equal(t, "blk.00<b>", lines[0].Name)

	var list []*imatrix.Entry
	for _, name := range []string{"b.10.w", "b.2.w", "b.2", "a"} {
		list = append(list, &imatrix.Entry{Header: imatrix.Header{Name: name, Matrices: 1, Cols: 1}, Counts: []int64{1}, Sums: []float64{1}})
	}
	s, err := imatrix.NewMemory(imatrix.Info{}, list)
	require.NoError(t, err)
	lines, err = chart.Lines(s)
	require.NoError(t, err)
	var names []string
	for _, l := range lines {
		names = append(names, l.Name)
	}
	require.Equal(t, []string{"a", "b.2", "b.2.w", "b.10.w"}, names)
}

func TestPicture(t *testing.T) {
	for _, cols := range []int{1, 3, 128, 1000} {
		lines, err := chart.Lines(set(t, 5, cols))
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, chart.WritePNG(&out, "title", lines))
		img, err := png.Decode(&out)
		require.NoError(t, err)
		require.Greater(t, img.Bounds().Dx(), 700)
	}
	require.ErrorIs(t, chart.WritePNG(&bytes.Buffer{}, "", nil), imatrix.ErrEmpty)
}

func TestReportEscapesNames(t *testing.T) {
	lines, err := chart.Lines(set(t, 3, 64))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, chart.WriteHTML(&out, "a & b", lines))
	require.Contains(t, out.String(), "a &amp; b")
	require.Contains(t, out.String(), "blk.02&lt;b&gt;")
	require.NotContains(t, out.String(), "<b>")
	require.Equal(t, 4, strings.Count(out.String(), "<tr>"))
}

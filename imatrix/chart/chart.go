package chart

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/sdtool/sdtool/imatrix"
)

// Bins is the number of cells in a line of the heat map.
const Bins = 128

// limit is the range of the colour scale: 2^-limit to 2^limit times the mean.
const limit = 6

// Line is one entry, ready to draw.
type Line struct {
	imatrix.Statistics
	Cells [Bins]float64 // log2 of the bin's mean over the entry's mean; NaN where there is no column
}

// Lines reads every entry of a Set, one at a time, and orders them as a model is
// built: block 2 comes before block 10.
func Lines(s imatrix.Set) ([]Line, error) {
	lines := make([]Line, 0, len(s.Headers()))
	for i := range s.Headers() {
		e, err := s.Read(i)
		if err != nil {
			return nil, err
		}
		lines = append(lines, newLine(e))
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return natural(a.Name, b.Name) })
	return lines, nil
}

var parts = regexp.MustCompile(`[0-9]+|[^0-9]+`)

// natural compares names with runs of digits as numbers.
func natural(a, b string) int {
	pa, pb := parts.FindAllString(a, -1), parts.FindAllString(b, -1)
	for i := range min(len(pa), len(pb)) {
		if pa[i] == pb[i] {
			continue
		}
		na, errA := strconv.ParseUint(pa[i], 10, 64)
		nb, errB := strconv.ParseUint(pb[i], 10, 64)
		if errA == nil && errB == nil && na != nb {
			return cmp.Compare(na, nb)
		}
		return strings.Compare(pa[i], pb[i])
	}
	return cmp.Compare(len(pa), len(pb))
}

// newLine gathers an entry's columns (all its matrices one after the other) into bins.
func newLine(e *imatrix.Entry) Line {
	l := Line{Statistics: e.Statistics()}
	var sum [Bins]float64
	var n [Bins]int
	total := 0.0
	for m := range e.Counts {
		for j, v := range e.Means(m) {
			bin := (m*e.Cols + j) * Bins / len(e.Sums)
			sum[bin] += float64(v)
			n[bin]++
			total += float64(v)
		}
	}
	mean := total / float64(max(len(e.Sums), 1))
	for i := range l.Cells {
		switch {
		case n[i] == 0:
			l.Cells[i] = math.NaN()
		case sum[i] == 0 || mean == 0:
			l.Cells[i] = -limit
		default:
			l.Cells[i] = min(max(math.Log2(sum[i]/float64(n[i])/mean), -limit), limit)
		}
	}
	fillGaps(&l.Cells)
	return l
}

// fillGaps repeats the cell on the left where an entry has fewer columns than bins.
func fillGaps(cells *[Bins]float64) {
	for i := 1; i < Bins; i++ {
		if math.IsNaN(cells[i]) {
			cells[i] = cells[i-1]
		}
	}
}

// grid gives the lines to gonum's heat map, the first at the top.
type grid []Line

func (g grid) Dims() (c, r int)   { return Bins, len(g) }
func (g grid) Z(c, r int) float64 { return g[len(g)-1-r].Cells[c] }
func (g grid) X(c int) float64    { return 100 * (float64(c) + 0.5) / Bins }
func (g grid) Y(r int) float64    { return float64(r) }

// lineHeight and the other sizes are in points.
const (
	lineHeight = 9
	mapWidth   = 700
	barWidth   = 160
	labelChar  = 4.2
	margin     = 60
	maxHeight  = 12000
)

// WritePNG draws the heat map with, at its right, the mean of every entry on a
// logarithmic scale. There must be at least one line.
func WritePNG(w io.Writer, title string, lines []Line) error {
	if len(lines) == 0 {
		return fmt.Errorf("draw an importance matrix: %w", imatrix.ErrEmpty)
	}
	longest := 0
	for _, l := range lines {
		longest = max(longest, len(l.Name))
	}
	label := vg.Length(float64(longest) * labelChar)
	height := vg.Length(min(float64(len(lines)*lineHeight+2*margin), maxHeight))
	left, err := heatPlot(title, lines)
	if err != nil {
		return err
	}
	right := meanPlot(lines)
	canvas := vgimg.NewWith(vgimg.UseWH(label+mapWidth+barWidth, height), vgimg.UseDPI(72))
	dc := draw.New(canvas)
	left.Draw(draw.Crop(dc, 0, -barWidth, 0, 0))
	right.Draw(draw.Crop(dc, label+mapWidth, 0, 0, 0))
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(w); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

func heatPlot(title string, lines []Line) (*plot.Plot, error) {
	colours := moreland.ExtendedBlackBody()
	colours.SetMin(-limit)
	colours.SetMax(limit)
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "columns, %: bright = 64 times the entry's mean and more, black = a 64th and less"
	heat := plotter.NewHeatMap(grid(lines), colours.Palette(255))
	heat.Min, heat.Max = -limit, limit
	p.Add(heat)
	p.X.Min, p.X.Max = 0, 100
	p.Y.Tick.Label.Font.Variant = "Mono"
	p.Y.Tick.Label.Font.Size = 7
	p.Y.Tick.Marker = plot.ConstantTicks(ticks(lines))
	p.Y.Min, p.Y.Max = -0.5, float64(len(lines))-0.5
	return p, nil
}

// ticks labels every line, or every nth where the picture would be too high for that.
func ticks(lines []Line) []plot.Tick {
	step := len(lines)*lineHeight/maxHeight + 1
	var out []plot.Tick
	for i := 0; i < len(lines); i += step {
		out = append(out, plot.Tick{Value: float64(len(lines) - 1 - i), Label: lines[i].Name})
	}
	return out
}

// meanPlot shows log10 of each entry's mean square as horizontal bars.
func meanPlot(lines []Line) *plot.Plot {
	p := plot.New()
	p.Title.Text = " "
	p.X.Label.Text = "mean square, log10"
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		if l.Mean > 0 {
			low, high = min(low, math.Log10(l.Mean)), max(high, math.Log10(l.Mean))
		}
	}
	if math.IsInf(low, 1) {
		low, high = 0, 1
	}
	low = math.Floor(low - 0.1)
	p.X.Min, p.X.Max = low, max(math.Ceil(high), low+1)
	p.Y.Min, p.Y.Max = -0.5, float64(len(lines))-0.5
	p.HideY()
	for i, l := range lines {
		if l.Mean <= 0 {
			continue
		}
		y, x := float64(len(lines)-1-i), math.Log10(l.Mean)
		bar, err := plotter.NewPolygon(plotter.XYs{{X: low, Y: y - 0.4}, {X: x, Y: y - 0.4}, {X: x, Y: y + 0.4}, {X: low, Y: y + 0.4}})
		if err != nil {
			continue // a bar that cannot be drawn is not worth the picture
		}
		bar.Color = color.RGBA{R: 0x50, G: 0x70, B: 0xA0, A: 0xFF}
		bar.LineStyle.Width = 0
		p.Add(bar)
	}
	return p
}

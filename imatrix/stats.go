package imatrix

import (
	"math"
	"slices"
	"sort"
)

// Statistics describes how one weight's columns are driven. All figures are of
// the per-column mean squares (sum/count) of all its matrices together.
type Statistics struct {
	Header
	Calls   int64
	Rows    int64   // activation rows seen, all matrices together
	Mean    float64 // mean square, in activation units squared
	Max     float64
	Top1    float64 // share (0..1) of the total in the strongest 1 % of columns (at least one)
	Top5    float64 // the same for 5 %
	Entropy float64 // of the columns' shares, in units of log(columns): 1 = all alike, 0 = one column
	Zero    int     // columns that were always zero
	Unseen  int     // matrices (experts) that saw no row
}

// Statistics returns the figures of the entry.
func (e *Entry) Statistics() Statistics {
	s := Statistics{Header: e.Header, Calls: e.Calls, Unseen: e.Unseen()}
	values := make([]float64, 0, len(e.Sums))
	for m, count := range e.Counts {
		s.Rows += count
		if count == 0 && e.Origin != OriginDat {
			continue
		}
		for _, v := range e.matrix(m) {
			values = append(values, v/float64(max(count, 1)))
		}
	}
	if len(values) == 0 {
		return s
	}
	slices.Sort(values)
	slices.Reverse(values)
	total := 0.0
	for _, v := range values {
		total += v
		if v == 0 {
			s.Zero++
		}
	}
	s.Mean, s.Max = total/float64(len(values)), values[0]
	if total == 0 {
		return s
	}
	s.Top1, s.Top5 = topShare(values, total, 0.01), topShare(values, total, 0.05)
	for _, v := range values {
		if v > 0 {
			p := v / total
			s.Entropy -= p * math.Log(p)
		}
	}
	if len(values) > 1 {
		s.Entropy /= math.Log(float64(len(values)))
	}
	return s
}

// topShare returns the share of total in the first part of descending values.
func topShare(values []float64, total, part float64) float64 {
	n := max(int(math.Round(part*float64(len(values)))), 1)
	sum := 0.0
	for _, v := range values[:n] {
		sum += v
	}
	return sum / total
}

// Difference compares one name in two matrices, by the per-column mean squares.
type Difference struct {
	Name   string
	OnlyIn int // 1 or 2 if the other lacks it, else 0
	Width  [2]int
	// Cosine of the two vectors (1 = same direction), and
	// RelError = |a-b| / |a| (Euclidean), both NaN if the widths differ.
	Cosine, RelError float64
}

// Compare returns a Difference for every name in either Set, sorted by name.
func Compare(a, b Set) ([]Difference, error) {
	ia, ib := NewIndex(a), NewIndex(b)
	names := make(map[string]bool)
	for _, s := range []Set{a, b} {
		for _, h := range s.Headers() {
			names[h.Name] = true
		}
	}
	out := make([]Difference, 0, len(names))
	for name := range names {
		ea, err := ia.Find(name)
		if err != nil {
			return nil, err
		}
		eb, err := ib.Find(name)
		if err != nil {
			return nil, err
		}
		out = append(out, difference(name, ea, eb))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func difference(name string, a, b *Entry) Difference {
	d := Difference{Name: name, Cosine: math.NaN(), RelError: math.NaN()}
	switch {
	case b == nil:
		d.OnlyIn, d.Width[0] = 1, len(a.Sums)
		return d
	case a == nil:
		d.OnlyIn, d.Width[1] = 2, len(b.Sums)
		return d
	}
	d.Width = [2]int{len(a.Sums), len(b.Sums)}
	if d.Width[0] != d.Width[1] {
		return d
	}
	va, vb := a.allMeans(), b.allMeans()
	var dot, na, nb, diff float64
	for j := range va {
		dot += va[j] * vb[j]
		na += va[j] * va[j]
		nb += vb[j] * vb[j]
		diff += (va[j] - vb[j]) * (va[j] - vb[j])
	}
	switch {
	case na == 0 && nb == 0:
		d.Cosine, d.RelError = 1, 0
	case na == 0 || nb == 0:
		d.Cosine, d.RelError = 0, math.Inf(1)
		if na > 0 {
			d.RelError = 1
		}
	default:
		d.Cosine, d.RelError = dot/math.Sqrt(na)/math.Sqrt(nb), math.Sqrt(diff/na)
	}
	return d
}

func (e *Entry) allMeans() []float64 {
	out := make([]float64, len(e.Sums))
	for m, count := range e.Counts {
		for j, v := range e.matrix(m) {
			out[m*e.Cols+j] = v / float64(max(count, 1))
		}
	}
	return out
}

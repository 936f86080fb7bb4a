package imatrix

import (
	"fmt"
	"sort"
)

// merged adds Sets entry by entry as it is read, so that merging needs memory
// for one entry, not for the files.
type merged struct {
	sets    []Set
	headers []Header
	parts   [][]part // for each header, where it comes from
	info    Info
	single  bool
}

type part struct {
	set, index int
	flat       bool // one row of Matrices·Cols values: a .dat's form of several matrices
}

// MergeOption changes how Merge adds.
type MergeOption func(*merged)

// Float32Sums rounds every sum to float32 after each addition, in the order of
// the Sets, as stable-diffusion.cpp does with several --imat-in files.
func Float32Sums() MergeOption { return func(m *merged) { m.single = true } }

// Merge returns the sum of the Sets: sums, counts and calls are added, names in
// only some of them are kept. Entries of one name must agree in width, else the
// error is a *WidthError naming it; a flat .dat entry joins one with experts
// if their totals agree, its calls then count for every expert. A single count
// and per-expert counts add as llama-imatrix does.
func Merge(sets []Set, opts ...MergeOption) (Set, error) {
	m := &merged{sets: sets}
	for _, o := range opts {
		o(m)
	}
	index := make(map[string]int)
	for si, s := range sets {
		for hi, h := range s.Headers() {
			at, known := index[h.Name]
			if !known {
				index[h.Name] = len(m.headers)
				m.headers = append(m.headers, h)
				m.parts = append(m.parts, []part{{set: si, index: hi}})
				continue
			}
			have := m.headers[at]
			if have.Matrices*have.Cols != h.Matrices*h.Cols || (have.Matrices != h.Matrices && have.Matrices != 1 && h.Matrices != 1) {
				return nil, &WidthError{Entry: h.Name, Got: int64(h.Matrices * h.Cols), Want: int64(have.Matrices * have.Cols), Where: fmt.Sprintf("matrix %d of the merge", si+1)}
			}
			if h.Matrices > have.Matrices {
				m.headers[at] = h
			}
			m.parts[at] = append(m.parts[at], part{set: si, index: hi})
		}
		m.addInfo(s.Info())
	}
	for at, h := range m.headers {
		for i, p := range m.parts[at] {
			m.parts[at][i].flat = sets[p.set].Headers()[p.index].Matrices != h.Matrices
		}
	}
	m.sort()
	return m, nil
}

func (m *merged) sort() {
	order := make([]int, len(m.headers))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return m.headers[order[a]].Name < m.headers[order[b]].Name })
	headers, parts := make([]Header, len(order)), make([][]part, len(order))
	for to, from := range order {
		headers[to], parts[to] = m.headers[from], m.parts[from]
	}
	m.headers, m.parts = headers, parts
}

func (m *merged) addInfo(in Info) {
	known := make(map[string]bool)
	for _, d := range m.info.Datasets {
		known[d] = true
	}
	for _, d := range in.Datasets {
		if !known[d] {
			known[d] = true
			m.info.Datasets = append(m.info.Datasets, d)
		}
	}
	m.info.ChunkCount += in.ChunkCount
	m.info.ChunkSize = max(m.info.ChunkSize, in.ChunkSize)
	if m.info.Provenance == nil {
		m.info.Provenance = in.Provenance
		return
	}
	// Keep what all agree on; the rest no longer describes the whole.
	agreed := make(map[string]string)
	for k, v := range m.info.Provenance {
		if w, ok := in.Provenance[k]; ok && v == w {
			agreed[k] = v
		}
	}
	m.info.Provenance = agreed
}

func (m *merged) Headers() []Header { return m.headers }
func (m *merged) Info() Info        { return m.info }

func (m *merged) Read(i int) (*Entry, error) {
	var sum *Entry
	for _, p := range m.parts[i] {
		e, err := m.sets[p.set].Read(p.index)
		if err != nil {
			return nil, err
		}
		if p.flat {
			e.split(m.headers[i].Matrices)
		}
		if sum == nil {
			sum = e
			continue
		}
		sum.add(e)
		if m.single {
			for j, s := range sum.Sums {
				sum.Sums[j] = float64(float32(s))
			}
		}
	}
	return sum, nil
}

// split turns a flat entry into one with matrices that share its count.
func (e *Entry) split(matrices int) {
	e.Cols = len(e.Sums) / matrices
	e.Matrices = matrices
	counts := make([]int64, matrices)
	for m := range counts {
		counts[m] = e.Counts[0]
	}
	e.Counts = counts
}

// add adds the statistics of another entry of the same form. Sums and .dat
// values mix as llama-imatrix mixes them: a .dat value is a sum over calls.
func (e *Entry) add(other *Entry) {
	for j, s := range other.Sums {
		e.Sums[j] += s
	}
	for m, c := range other.Counts {
		e.Counts[m] += c
	}
	e.Calls += other.Calls
	if other.Origin == OriginSums {
		e.Origin = OriginSums
	}
}

package imatrix

import (
	"fmt"
	"sync"
)

// Accumulator collects statistics while a model runs. Its methods may be
// called from many goroutines; different weights do not wait for each other.
type Accumulator struct {
	mu      sync.Mutex
	entries map[string]*collected
}

type collected struct {
	mu      sync.Mutex
	entry   Entry
	skipped int64
}

// NewAccumulator returns an empty Accumulator.
func NewAccumulator() *Accumulator { return &Accumulator{entries: make(map[string]*collected)} }

// Rows is a batch of activation rows in memory: row r begins at Data[r*Stride].
type Rows struct {
	Data   []float32
	Count  int // rows
	Cols   int // values per row
	Stride int // distance of row starts, in values; at least Cols
}

func (r Rows) check() error {
	switch {
	case r.Count < 0 || r.Cols < 1:
		return fmt.Errorf("%d rows of %d columns", r.Count, r.Cols)
	case r.Count > 1 && r.Stride < r.Cols:
		return fmt.Errorf("rows of %d columns overlap at a stride of %d", r.Cols, r.Stride)
	case r.Count > 0 && (len(r.Data)-r.Cols)/max(r.Stride, 1) < r.Count-1, r.Count > 0 && len(r.Data) < r.Cols:
		return fmt.Errorf("%d rows of %d columns at a stride of %d do not fit %d values", r.Count, r.Cols, r.Stride, len(r.Data))
	}
	return nil
}

// Call counts one operation of a weight that has the given number of matrices
// and columns; Add then brings its rows. A width other than the one seen before
// is a *WidthError.
func (a *Accumulator) Call(name string, matrices, cols int) error {
	c, err := a.get(name, matrices, cols)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.entry.Calls++
	c.mu.Unlock()
	return nil
}

// Add adds the squares of the rows to matrix m of a weight, in float64, and
// returns how many values it left out because they were NaN or infinite. The
// left-out values count as zero; their rows count.
func (a *Accumulator) Add(name string, matrices, m int, rows Rows) (skipped int64, err error) {
	if err := rows.check(); err != nil {
		return 0, fmt.Errorf("accumulate %q: %w", name, err)
	}
	if m < 0 || m >= matrices {
		return 0, fmt.Errorf("accumulate %q: matrix %d of %d", name, m, matrices)
	}
	c, err := a.get(name, matrices, rows.Cols)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	skipped = addSquares(c.entry.matrix(m), rows)
	c.entry.Counts[m] += int64(rows.Count)
	c.skipped += skipped
	return skipped, nil
}

func (a *Accumulator) get(name string, matrices, cols int) (*collected, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.entries[name]
	if c == nil {
		c = &collected{entry: Entry{
			Header: Header{Name: name, Matrices: matrices, Cols: cols},
			Sums:   make([]float64, matrices*cols),
			Counts: make([]int64, matrices),
		}}
		a.entries[name] = c
	}
	if c.entry.Matrices == 1 && matrices > 1 && c.entry.Cols == matrices*cols {
		c.mu.Lock()
		c.entry.split(matrices) // came flat from a .dat
		c.mu.Unlock()
	}
	if h := c.entry.Header; h.Cols != cols || h.Matrices != matrices {
		return nil, &WidthError{Entry: name, Got: int64(cols * matrices), Want: int64(h.Cols * h.Matrices), Where: "this operation"}
	}
	return c, nil
}

// matrices returns how many matrices a weight has shown itself to have, or 0.
func (a *Accumulator) matrices(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.entries[name]; c != nil {
		return c.entry.Matrices
	}
	return 0
}

// Skipped returns, for each weight that had any, how many activations were left
// out because they were NaN or infinite.
func (a *Accumulator) Skipped() map[string]int64 {
	out := make(map[string]int64)
	a.each(func(c *collected) {
		if c.skipped > 0 {
			out[c.entry.Name] = c.skipped
		}
	})
	return out
}

// Snapshot returns a copy of what has been collected so far; collection may go
// on meanwhile. Each entry is consistent in itself.
func (a *Accumulator) Snapshot(info Info) (*Memory, error) {
	var entries []*Entry
	a.each(func(c *collected) { entries = append(entries, c.entry.clone()) })
	return NewMemory(info, entries)
}

func (a *Accumulator) each(f func(*collected)) {
	a.mu.Lock()
	all := make([]*collected, 0, len(a.entries))
	for _, c := range a.entries {
		all = append(all, c)
	}
	a.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		f(c)
		c.mu.Unlock()
	}
}

// Load adds a Set, so that collection goes on from an earlier file. A flat
// .dat entry is cut into matrices when the weight first runs; entries that this
// run has already begun must agree in width.
func (a *Accumulator) Load(s Set) error {
	for i, h := range s.Headers() {
		e, err := s.Read(i)
		if err != nil {
			return err
		}
		if n := a.matrices(h.Name); h.Matrices == 1 && n > 1 && h.Cols%n == 0 {
			e.split(n)
		}
		c, err := a.get(e.Name, e.Matrices, e.Cols)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.entry.add(e)
		c.mu.Unlock()
	}
	return nil
}

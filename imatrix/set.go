package imatrix

import (
	"fmt"
	"math"
	"sort"
)

// Origin says which convention the numbers of an entry follow, because peers
// feed them to the quantizer differently.
type Origin uint8

const (
	// OriginSums: raw sums and row counts (GGUF files, collection).
	OriginSums Origin = iota
	// OriginDat: the legacy file's mean·calls, with calls standing in for the count.
	OriginDat
)

// Header says what an entry holds without its numbers.
type Header struct {
	Name     string // the weight tensor's name
	Matrices int    // number of matrices (experts); 1 for a dense weight and for everything in a .dat
	Cols     int    // columns per matrix
}

// Entry is the statistics of one weight.
type Entry struct {
	Header
	Origin Origin
	Sums   []float64 // [Matrices][Cols] sum of squared activations
	Counts []int64   // [Matrices] activation rows summed
	Calls  int64     // operations that contributed
}

// Info is what a matrix says about itself.
type Info struct {
	Datasets   []string          // data sets or prompt files it was made from
	ChunkCount uint32            // chunks processed (llama-imatrix's word for calls)
	ChunkSize  uint32            // rows per chunk; 0 if unknown
	Provenance map[string]string // what sdtool recorded when it collected: version, model, prompts, sampler
}

// Set is an importance matrix: a list of entries with distinct names, read one
// at a time.
type Set interface {
	// Headers lists the entries. The slice must not be changed.
	Headers() []Header
	// Read returns entry i of Headers. The caller owns it.
	Read(i int) (*Entry, error)
	// Info describes the whole.
	Info() Info
}

// Means returns, for matrix m, sum/count per column: what llama-quantize feeds
// its quantizer (division in float32). A matrix without rows gives 1 for every
// column, and a .dat entry with no calls its values unchanged.
func (e *Entry) Means(m int) []float32 {
	out := make([]float32, e.Cols)
	sums, count := e.matrix(m), e.Counts[m]
	switch {
	case count > 0:
		for j, s := range sums {
			out[j] = float32(s) / float32(count)
		}
	case e.Origin == OriginDat:
		for j, s := range sums {
			out[j] = float32(s)
		}
	default:
		for j := range out {
			out[j] = 1
		}
	}
	return out
}

// stored returns the numbers of matrix m as a .dat holds them: sum/count·calls,
// and for a matrix without rows the value of a mean of 1.
func (e *Entry) stored(m int) []float32 {
	out := make([]float32, e.Cols)
	count := e.Counts[m]
	for j, s := range e.matrix(m) {
		switch {
		case count > 0:
			out[j] = float32(s / float64(count) * float64(e.Calls))
		case e.Origin == OriginDat:
			out[j] = float32(s)
		default:
			out[j] = float32(max(e.Calls, 1))
		}
	}
	return out
}

func (e *Entry) matrix(m int) []float64 { return e.Sums[m*e.Cols : (m+1)*e.Cols] }

// Unseen returns how many matrices (experts) got no activation row.
func (e *Entry) Unseen() int {
	n := 0
	for _, c := range e.Counts {
		if c == 0 {
			n++
		}
	}
	return n
}

// check refuses statistics that would poison a quantizer.
func (e *Entry) check() error {
	for i, s := range e.Sums {
		if math.IsNaN(s) || math.IsInf(s, 0) || s < 0 {
			return fmt.Errorf("%w: %v in column %d of matrix %d", ErrNotFinite, s, i%e.Cols, i/e.Cols)
		}
	}
	for m, c := range e.Counts {
		if c < 0 {
			return fmt.Errorf("%w: count %d of matrix %d", ErrNotFinite, c, m)
		}
	}
	return nil
}

// Memory is a Set held in memory, sorted by name.
type Memory struct {
	info    Info
	entries []*Entry
	headers []Header
}

// NewMemory returns a Set of the given entries. It fails with ErrDuplicate if
// two have one name.
func NewMemory(info Info, entries []*Entry) (*Memory, error) {
	entries = append([]*Entry(nil), entries...)
	sort.Slice(entries, func(a, b int) bool { return entries[a].Name < entries[b].Name })
	m := &Memory{info: info, entries: entries, headers: make([]Header, len(entries))}
	for i, e := range entries {
		if i > 0 && entries[i-1].Name == e.Name {
			return nil, fmt.Errorf("%w: %q", ErrDuplicate, e.Name)
		}
		m.headers[i] = e.Header
	}
	return m, nil
}

// Headers lists the entries by name.
func (m *Memory) Headers() []Header { return m.headers }

// Info returns the description given to NewMemory.
func (m *Memory) Info() Info { return m.info }

// Read returns a copy of entry i.
func (m *Memory) Read(i int) (*Entry, error) { return m.entries[i].clone(), nil }

func (e *Entry) clone() *Entry {
	c := *e
	c.Sums = append([]float64(nil), e.Sums...)
	c.Counts = append([]int64(nil), e.Counts...)
	return &c
}

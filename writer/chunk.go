package writer

import (
	"fmt"
	"slices"

	"github.com/sdtool/sdtool/tensor"
)

// Sizes of chunks in bytes of output. Small enough to spread one tensor over
// all workers and to keep a worker's buffers in the cache's reach, large enough
// that a chunk's fixed costs do not show.
const (
	fillChunk = 4 << 20
	copyChunk = 32 << 20
)

// copyBuffer is the most that a copy without help from the system takes.
const copyBuffer = 2 << 20

// job is a run of units of one entry, or a run of bytes to copy.
type job struct {
	entry    int
	first, n int64 // units; bytes for a copy
	last     bool  // of its entry
}

// schedule is what the workers do, and with how much memory.
type schedule struct {
	jobs    []job
	workers int
	total   int64 // bytes of output
}

// cost is the memory that filling n units takes.
func cost(f Filler, n int64) int64 { return n*f.Unit() + f.Scratch(n) + slack }

// slack covers the rounding of scratch slices.
const slack = 1 << 12

// newSchedule cuts the plan into jobs that fit the budget.
func newSchedule(p *Plan, threads int, budget int64) (*schedule, error) {
	if len(p.Entries) != len(p.Layout.Offsets) {
		return nil, fmt.Errorf("plan has %d tensors, its layout %d", len(p.Entries), len(p.Layout.Offsets))
	}
	s := &schedule{workers: max(threads, 1)}
	order := make([]int, len(p.Entries))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := p.Entries[a].Order, p.Entries[b].Order
		if x.File != y.File {
			return x.File - y.File
		}
		switch {
		case x.Offset < y.Offset:
			return -1
		case x.Offset > y.Offset:
			return 1
		}
		return 0
	})
	if err := s.limitWorkers(p, budget); err != nil {
		return nil, err
	}
	for _, i := range order {
		if err := s.cut(p, i, budget/int64(s.workers)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// limitWorkers makes the pool so small that the largest unit fits each share.
func (s *schedule) limitWorkers(p *Plan, budget int64) error {
	for i := range p.Entries {
		e := &p.Entries[i]
		least := int64(copyBuffer)
		if e.Copy == nil {
			if e.Fill == nil {
				continue
			}
			least = cost(e.Fill, 1)
		}
		if least > budget {
			return &BudgetError{Tensor: e.Name, Need: least, Budget: budget}
		}
		s.workers = int(min(int64(s.workers), budget/least))
	}
	return nil
}

// cut appends the jobs of one entry.
func (s *schedule) cut(p *Plan, i int, share int64) error {
	e := &p.Entries[i]
	size, err := e.Bytes()
	if err != nil {
		return &TensorError{e.Name, err}
	}
	s.total += size
	count, step := size, int64(copyChunk)
	switch {
	case e.Copy != nil:
		if e.Copy.Length != size {
			return &TensorError{e.Name, fmt.Errorf("has %d bytes to copy, want %d for %s%s", e.Copy.Length, size, e.DType, tensor.ShapeString(e.Shape))}
		}
	case e.Fill != nil:
		unit := e.Fill.Unit()
		if unit <= 0 || size%unit != 0 {
			return &TensorError{e.Name, fmt.Errorf("%d bytes are not a number of units of %d", size, unit)}
		}
		count, step = size/unit, max(fillChunk/unit, 1)
		for step > 1 && cost(e.Fill, step) > share {
			step = (step + 1) / 2
		}
	case size > 0:
		return &TensorError{e.Name, fmt.Errorf("has %d bytes and nothing to write", size)}
	}
	for first := int64(0); first < count; first += step {
		n := min(step, count-first)
		s.jobs = append(s.jobs, job{entry: i, first: first, n: n, last: first+n == count})
	}
	return nil
}

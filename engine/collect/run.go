package collect

import (
	"context"
	"fmt"
	"image"
	"strconv"
	"strings"
	"time"

	"github.com/sdtool/sdtool/engine"
	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/native"
)

// Options say what to run and whom to tell.
type Options struct {
	Prompts []Prompt
	Index   []int         // where each prompt stands in the whole list; nil is 0, 1, …
	Params  engine.Params // common to all; Seed is that of the first prompt of the whole list
	Filter  Filter
	Weights StepWeights
	// Done tells which prompts an earlier run has finished, by Index.
	Done map[int]bool

	// Before is told before a prompt, Step after each step of it.
	Before func(n int, p engine.Params)
	Step   func(s engine.Step)
	// Picture is given each picture; nil computes latents only.
	Picture func(index, image int, p engine.Params, img *image.NRGBA) error
	// Finished is told after a prompt whose statistics are in the accumulator.
	Finished func(index int, took time.Duration) error
}

// Run generates from every prompt that is not done yet and adds what it sees to
// total. A prompt counts wholly or not at all: on an error or a cancelled
// context total holds the finished ones.
func Run(ctx context.Context, lib *native.Library, m *engine.Model, total *imatrix.Accumulator, o Options) error {
	for n, p := range o.Prompts {
		index := n
		if o.Index != nil {
			index = o.Index[n]
		}
		if o.Done[index] {
			continue
		}
		base := o.Params
		base.Seed += int64(index) * int64(max(base.Batch, 1))
		base.NoPictures = o.Picture == nil
		params := p.apply(base)
		params.Width, params.Height = m.Traits().FitSize(params.Width, params.Height)
		if o.Before != nil {
			o.Before(n, params)
		}
		start := time.Now()
		if err := one(ctx, lib, m, total, o, index, params); err != nil {
			return fmt.Errorf("prompt %d of %d: %w", n+1, len(o.Prompts), err)
		}
		if o.Finished != nil {
			if err := o.Finished(index, time.Since(start)); err != nil {
				return err
			}
		}
	}
	return nil
}

// one runs a prompt into an accumulator of its own, then adds that up.
func one(ctx context.Context, lib *native.Library, m *engine.Model, total *imatrix.Accumulator, o Options, index int, p engine.Params) error {
	acc := imatrix.NewAccumulator()
	rec := NewRecorder(lib, acc, o.Filter)
	rec.Attach(m)
	defer rec.Detach(m)
	hooks := engine.Hooks{
		Begin: func(s engine.Step) { rec.SetWeight(o.Weights.At(s.Step, s.Steps)) },
		Step:  o.Step,
	}
	if o.Picture != nil {
		hooks.Done = func(i int, img *image.NRGBA) error { return o.Picture(index, i, p, img) }
	}
	if _, err := m.Generate(ctx, p, hooks); err != nil {
		return err
	}
	set, err := acc.Snapshot(imatrix.Info{})
	if err != nil {
		return err
	}
	return total.Load(set)
}

// StepWeights say how often each step counts. The zero value counts all once.
type StepWeights struct {
	early, late bool
	list        []int
}

const maxWeight = 1000

// ParseStepWeights reads "uniform", "early", "late" (from 1 to 4 times along the
// steps) or a list such as "1,1,2": one number a step, the last for all further ones.
func ParseStepWeights(s string) (StepWeights, error) {
	switch s {
	case "", "uniform":
		return StepWeights{}, nil
	case "early":
		return StepWeights{early: true}, nil
	case "late":
		return StepWeights{late: true}, nil
	}
	var w StepWeights
	sum := 0
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 || n > maxWeight {
			return StepWeights{}, fmt.Errorf("step weights %q: expected uniform, early, late or numbers from 0 to %d", s, maxWeight)
		}
		sum += n
		w.list = append(w.list, n)
	}
	if sum == 0 {
		return StepWeights{}, fmt.Errorf("step weights %q: no step would count", s)
	}
	return w, nil
}

// At returns how often step (from 1) of steps counts.
func (w StepWeights) At(step, steps int) int {
	const most = 4
	at := func(k int) int {
		if steps < 2 {
			return 1
		}
		return 1 + ((most-1)*2*k+steps-1)/(2*(steps-1))
	}
	switch {
	case w.late:
		return at(step - 1)
	case w.early:
		return at(steps - step)
	case len(w.list) == 0:
		return 1
	case step > len(w.list):
		return w.list[len(w.list)-1]
	}
	return w.list[step-1]
}

// Coverage compares what was collected with what the model has.
type Coverage struct {
	Expected int      // weights of matrix products that the filter wants
	Seen     int      // of them, with statistics
	Missing  []string // the others: no prompt drove them
	Weak     []string // seen with fewer activation rows than columns, or with an unused expert
	Calls    [2]int64 // least and most per entry
}

// Cover reports coverage of a model by a set.
func Cover(m *engine.Model, f Filter, s imatrix.Set) (Coverage, error) {
	var c Coverage
	at := make(map[string]int)
	for i, h := range s.Headers() {
		at[h.Name] = i
	}
	for _, w := range m.Matrices() {
		if !f.Match(w.Name) {
			continue
		}
		c.Expected++
		i, ok := at[w.Name]
		if !ok {
			c.Missing = append(c.Missing, w.Name)
			continue
		}
		e, err := s.Read(i)
		if err != nil {
			return c, err
		}
		c.Seen++
		if e.Unseen() > 0 || e.Counts[0] < int64(e.Cols) {
			c.Weak = append(c.Weak, w.Name)
		}
		if c.Seen == 1 || e.Calls < c.Calls[0] {
			c.Calls[0] = e.Calls
		}
		c.Calls[1] = max(c.Calls[1], e.Calls)
	}
	return c, nil
}

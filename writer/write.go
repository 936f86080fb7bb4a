package writer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sdtool/sdtool/tensor"
)

// DefaultMaxMemory is the budget where Options give none.
const DefaultMaxMemory = 1 << 30

// Options say where and how to write.
type Options struct {
	Path      string
	Inputs    []string // files that the output must not be
	Overwrite bool     // replace an existing output
	Threads   int      // workers; 0 means DefaultThreads
	MaxMemory int64    // bytes that all workers' buffers may take; 0 means DefaultMaxMemory
	// Progress, if set, is called after every chunk, from one goroutine at a time.
	Progress func(Progress)
	// Verify, if set, is called when all bytes are written and before the
	// output is replaced: the last chance to say that the inputs have changed.
	Verify func() error

	// Resume goes on with what an earlier run with Resume and the same
	// Fingerprint has written, and keeps what this one has if it fails. It costs
	// a checksum of every byte.
	Resume bool
	// Fingerprint stands for everything that decides the output's bytes besides
	// the plan's header: inputs and options.
	Fingerprint string

	system system // of tests
}

// Progress tells how far a Write has come.
type Progress struct {
	Done, Total int64  // bytes of tensors
	Tensor      string // the one that just grew
}

// Result tells what was written.
type Result struct {
	Path    string
	Size    int64 // of the file, bytes
	Resumed int64 // bytes of tensors that an earlier run had written
}

// Write writes the planned file. Its errors name the output or the tensor; see
// the package's documentation for what they leave behind.
func Write(ctx context.Context, p *Plan, o Options) (*Result, error) {
	if o.Threads <= 0 {
		o.Threads = DefaultThreads()
	}
	if o.MaxMemory <= 0 {
		o.MaxMemory = DefaultMaxMemory
	}
	if o.system == nil {
		o.system = osSystem{}
	}
	s, err := newSchedule(p, o.Threads, o.MaxMemory)
	if err != nil {
		return nil, err
	}
	t, err := openTarget(o.system, o.Path, o.Overwrite, o.Inputs, o.Resume)
	if err != nil {
		return nil, err
	}
	resumed := int64(0)
	if o.Resume {
		if resumed, err = t.resume(p, s, o.Fingerprint); err != nil {
			return nil, errors.Join(err, t.out.Close())
		}
	}
	if err := t.reserve(p.Layout.Size); err != nil {
		return nil, t.abandon(err)
	}
	if err := fillTarget(ctx, t, p, s, resumed, o.Progress); err != nil {
		return nil, t.abandon(err)
	}
	if o.Verify != nil {
		if err := o.Verify(); err != nil {
			return nil, t.abandon(err)
		}
	}
	if err := t.commit(p.Layout.Size); err != nil {
		return nil, err
	}
	return &Result{Path: t.path, Size: p.Layout.Size, Resumed: resumed}, nil
}

// fillTarget writes the header and runs the jobs.
func fillTarget(ctx context.Context, t *target, p *Plan, s *schedule, done int64, report func(Progress)) error {
	if err := writeAll(t.out, p.Layout.Header, 0); err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	g, ctx := errgroup.WithContext(ctx)
	run := &run{target: t, plan: p, total: s.total, done: done, report: report}
	var next atomic.Int64
	for range min(s.workers, len(s.jobs)) {
		g.Go(func() error {
			w := &worker{run: run}
			for {
				i := int(next.Add(1) - 1)
				if i >= len(s.jobs) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := w.do(ctx, s.jobs[i]); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	if cause := context.Cause(ctx); err != nil && errors.Is(err, context.Canceled) && cause != nil {
		return fmt.Errorf("write %s: %w", t.path, cause)
	}
	return err
}

// run is what the workers share.
type run struct {
	target *target
	plan   *Plan
	total  int64
	report func(Progress)
	mu     sync.Mutex
	done   int64
}

func (r *run) progress(e *Entry, n int64) {
	if r.report == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += n
	r.report(Progress{Done: r.done, Total: r.total, Tensor: e.Name})
}

// worker is one goroutine's memory.
type worker struct {
	run     *run
	dst     []byte
	scratch Scratch
}

func (w *worker) do(ctx context.Context, j job) error {
	e := &w.run.plan.Entries[j.entry]
	at := w.run.plan.Layout.Offsets[j.entry]
	var err error
	if e.Copy != nil {
		err = w.copy(e.Copy, at+j.first, j)
	} else {
		err = w.fill(ctx, e, at, j)
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return err
		}
		return &TensorError{e.Name, err}
	}
	w.run.progress(e, j.n*e.unit())
	return nil
}

func (w *worker) fill(ctx context.Context, e *Entry, at int64, j job) (err error) {
	// A fault in a Filler must not take the temporary file's removal with it.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal fault while filling units %d to %d: %v\n%s", j.first, j.first+j.n, r, debug.Stack())
		}
	}()
	unit := e.Fill.Unit()
	if int64(cap(w.dst)) < j.n*unit {
		w.dst = make([]byte, j.n*unit)
	}
	dst := w.dst[:j.n*unit]
	if err := e.Fill.Fill(ctx, dst, j.first, j.n, &w.scratch); err != nil {
		return err
	}
	if err := writeAll(w.run.target.out, dst, at+j.first*unit); err != nil {
		return err
	}
	return w.record(j, crc32.Checksum(dst, castagnoli))
}

// record notes a finished chunk, if this run keeps a journal.
func (w *worker) record(j job, sum uint32) error {
	if w.run.target.journal == nil {
		return nil
	}
	return w.run.target.journal.add(j, sum)
}

// copy moves a run of bytes of a section to the output, inside the kernel where it
// can and nobody needs to see them.
func (w *worker) copy(s *tensor.Section, at int64, j job) error {
	from, n, done := j.first, j.n, int64(0)
	if w.run.target.journal == nil {
		var err error
		if done, err = w.run.target.out.CopyFrom(s.File, s.Offset+from, at, n); err != nil {
			return err
		}
	}
	buf := w.scratch.Bytes(0, min(copyBuffer, n-done))
	sum := uint32(0)
	for done < n {
		part := buf[:min(int64(len(buf)), n-done)]
		if got, err := s.ReadAt(part, from+done); got < len(part) {
			return err
		}
		if err := writeAll(w.run.target.out, part, at+done); err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, part)
		done += int64(len(part))
	}
	return w.record(j, sum)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/writer"
)

// How often each kind of progress is shown.
const (
	barEvery   = 100 * time.Millisecond
	plainEvery = 5 * time.Second
	jsonEvery  = time.Second
)

// progressFlag adds --progress to a command.
func progressFlag(cmd *cobra.Command, mode *string) {
	*mode = "auto"
	choiceVar(cmd.Flags(), mode, "progress", "`HOW` to show progress: auto, bar, plain, json (lines on stderr) or none", "auto", "bar", "plain", "json", "none")
}

// progress shows how far long work has come. Workers only store numbers; a
// ticker prints them, so that a slow terminal never slows a worker.
type progress struct {
	out   io.Writer
	label string
	mode  string

	done, total atomic.Int64
	what        atomic.Pointer[string]

	start time.Time
	bar   *progressbar.ProgressBar
	stop  chan struct{}
	wg    sync.WaitGroup
}

// newProgress starts showing progress in the given mode. Close ends it.
func (a *app) newProgress(mode, label string) *progress {
	if mode == "auto" {
		switch {
		case a.quiet:
			mode = "none"
		case a.terminal:
			mode = "bar"
		default:
			mode = "plain"
		}
	}
	p := &progress{out: a.stderr, label: label, mode: mode, start: time.Now(), stop: make(chan struct{})}
	every := map[string]time.Duration{"bar": barEvery, "plain": plainEvery, "json": jsonEvery}[mode]
	if every == 0 {
		return p
	}
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.show("progress")
			case <-p.stop:
				return
			}
		}
	}()
	return p
}

// set stores how far the work is, in bytes, and what it is at.
func (p *progress) set(done, total int64, what string) {
	p.done.Store(done)
	p.total.Store(total)
	p.what.Store(&what)
}

// close shows the last state and waits for the ticker.
func (p *progress) close(err error) {
	close(p.stop)
	p.wg.Wait()
	switch {
	case p.mode == "bar" && p.bar != nil:
		_ = p.bar.Clear() // a terminal that is gone is no reason to fail
	case p.mode == "json" && errors.Is(err, context.Canceled):
		p.show("interrupted")
	case p.mode == "json" && err != nil:
		p.show("failed")
	case p.mode == "json":
		p.show("done")
	}
}

// progressLine is one line of --progress=json.
type progressLine struct {
	Event  string  `json:"event"` // "progress", and last "done", "failed" or "interrupted"
	Phase  string  `json:"phase"`
	Done   int64   `json:"done"`
	Total  int64   `json:"total"`
	Rate   float64 `json:"bytes_per_second"`
	ETA    float64 `json:"eta_seconds"`
	Tensor string  `json:"tensor,omitempty"`
}

func (p *progress) show(event string) {
	done, total := p.done.Load(), p.total.Load()
	if total == 0 && event == "progress" {
		return
	}
	seconds := time.Since(p.start).Seconds()
	rate := float64(done) / max(seconds, 1e-9)
	eta := 0.0
	if done > 0 {
		eta = float64(total-done) / max(rate, 1)
	}
	switch p.mode {
	case "bar":
		if p.bar == nil {
			p.bar = progressbar.NewOptions64(total,
				progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(p.label),
				progressbar.OptionShowBytes(true), progressbar.OptionFullWidth(), progressbar.OptionSetPredictTime(true),
				progressbar.OptionSetElapsedTime(false))
			return // its clock starts now, so that its first rate would be nonsense
		}
		_ = p.bar.Set64(done) // as in close
	case "plain":
		fmt.Fprintf(p.out, "%s: %s of %s (%.0f %%), %s/s, %s left\n", p.label, writer.FormatSize(done), writer.FormatSize(total),
			100*float64(done)/float64(max(total, 1)), writer.FormatSize(int64(rate)), time.Duration(eta*float64(time.Second)).Round(time.Second))
	case "json":
		line := progressLine{Event: event, Phase: p.label, Done: done, Total: total, Rate: rate, ETA: eta}
		if what := p.what.Load(); what != nil && event != "done" {
			line.Tensor = *what
		}
		if text, err := json.Marshal(line); err == nil {
			fmt.Fprintf(p.out, "%s\n", text)
		}
	}
}

package sample

import (
	"fmt"
	"math"
)

// Scheduler chooses the noise levels of a run.
type Scheduler uint8

// The schedulers, in the order other tools list them.
const (
	Discrete Scheduler = iota
	Karras
	Exponential
	AYS
	GITS
	SGMUniform
	Simple
	SmoothStep
	KLOptimal
	LCMScheduler
	BongTangent
	LTX2
	LogitNormal
	Flux2
	Flux
	Beta
)

var schedulerNames = [...]string{
	Discrete: "discrete", Karras: "karras", Exponential: "exponential", AYS: "ays", GITS: "gits",
	SGMUniform: "sgm_uniform", Simple: "simple", SmoothStep: "smoothstep", KLOptimal: "kl_optimal",
	LCMScheduler: "lcm", BongTangent: "bong_tangent", LTX2: "ltx2", LogitNormal: "logit_normal",
	Flux2: "flux2", Flux: "flux", Beta: "beta",
}

// Schedulers lists every scheduler.
func Schedulers() []Scheduler { return enumerate[Scheduler](len(schedulerNames)) }

// String returns the command-line name.
func (s Scheduler) String() string { return nameOf(schedulerNames[:], int(s), "scheduler") }

// ParseScheduler turns a command-line name into a Scheduler; "normal" is another name of discrete.
func ParseScheduler(name string) (Scheduler, error) {
	if name == "normal" {
		return Discrete, nil
	}
	i, err := indexOf(schedulerNames[:], name, "scheduler")
	return Scheduler(i), err
}

func enumerate[T ~uint8](n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = T(i)
	}
	return all
}

// DefaultScheduler is what a run uses when none is asked for.
func DefaultScheduler(p Prediction, m Method) Scheduler {
	switch {
	case p == EDMV:
		return Exponential
	case m == LCM || m == TCD:
		return LCMScheduler
	case m == DDIMTrailing:
		return Simple
	case p == FluxFlow:
		return Flux
	}
	return Discrete
}

// Family picks the tuned noise levels of AYS.
type Family uint8

// The families AYS has levels for; OtherFamily has none.
const (
	OtherFamily Family = iota
	SD1
	SDXL
	SVD
)

// ScheduleOptions are facts some schedulers need.
type ScheduleOptions struct {
	Family Family // AYS
	Tokens int    // image tokens the network sees: Flux, Flux2, LTX2, LogitNormal
	Args   Args
}

// MaxSteps bounds a run: more than this is a mistake, and would only fill memory.
const MaxSteps = 10000

// Sigmas returns the noise levels of a run of the given number of steps: falling, one per step and a final zero.
// Beta may return fewer steps, as it drops repeated times. It fails on a step count the scheduler cannot serve.
func (m *Model) Sigmas(s Scheduler, steps int, o ScheduleOptions) ([]float32, error) {
	if steps < 1 || steps > MaxSteps {
		return nil, fmt.Errorf("scheduler %v: expected 1 to %d steps, found %d", s, MaxSteps, steps)
	}
	build, ok := schedules[s]
	if !ok {
		return nil, fmt.Errorf("unknown scheduler %v", s)
	}
	levels, err := build(m, steps, o)
	if err != nil {
		return nil, fmt.Errorf("scheduler %v: %w", s, err)
	}
	return levels, nil
}

// schedules has a row per scheduler.
var schedules = map[Scheduler]func(*Model, int, ScheduleOptions) ([]float32, error){
	Discrete:     plain(discrete),
	Karras:       plain(karras),
	Exponential:  plain(exponential),
	AYS:          ays,
	GITS:         gits,
	SGMUniform:   plain(sgmUniform),
	Simple:       plain(simple),
	SmoothStep:   plain(smoothStep),
	KLOptimal:    plain(klOptimal),
	LCMScheduler: plain(lcmSchedule),
	BongTangent:  plain(bongTangent),
	LTX2:         ltx2,
	LogitNormal:  logitNormal,
	Flux2:        flux2,
	Flux:         flux,
	Beta:         beta,
}

// plain adapts a schedule that needs no options; the final zero is appended here.
func plain(levels func(*Model, int) []float32) func(*Model, int, ScheduleOptions) ([]float32, error) {
	return func(m *Model, n int, _ ScheduleOptions) ([]float32, error) {
		return append(levels(m, n), 0), nil
	}
}

const lastTime = Timesteps - 1

// discrete spaces times evenly from the last to the first.
func discrete(m *Model, n int) []float32 {
	if n == 1 {
		return []float32{m.Sigma(lastTime)}
	}
	step := float32(lastTime) / float32(n-1)
	out := make([]float32, n, n+1)
	for i := range out {
		out[i] = m.Sigma(lastTime - float32(step*float32(i)))
	}
	return out
}

// karras spaces levels evenly in their seventh root (Karras et al. 2022, equation 5).
func karras(m *Model, n int) []float32 {
	const rho float32 = 7
	root := func(x, p float32) float32 { return powf(x, p) }
	low := root(max(m.SigmaMin(), 1e-6), 1/rho)
	high := root(m.SigmaMax(), 1/rho)
	if n == 1 {
		return []float32{root(high, rho)}
	}
	out := make([]float32, n, n+1)
	for i := range out {
		ramp := float32(i) / (float32(n) - 1)
		out[i] = root(high+float32(ramp*(low-high)), rho)
	}
	return out
}

// exponential spaces levels evenly in their logarithm.
func exponential(m *Model, n int) []float32 {
	low, high := logf(m.SigmaMin()), logf(m.SigmaMax())
	if n == 1 {
		return []float32{expf(high)}
	}
	step := (high - low) / float32(n-1)
	out := make([]float32, n, n+1)
	for i := range out {
		out[i] = expf(high - float32(step*float32(i)))
	}
	return out
}

// sgmUniform spaces times evenly with the first time left out for the final zero.
func sgmUniform(m *Model, n int) []float32 {
	times := linearSpace(lastTime, 0, n+1)
	out := make([]float32, n, n+1)
	for i := range out {
		out[i] = m.Sigma(times[i])
	}
	return out
}

// simple picks every (Timesteps/n)-th trained level from the top.
func simple(m *Model, n int) []float32 {
	stride := float32(Timesteps) / float32(n)
	out := make([]float32, n, n+1)
	for i := range out {
		out[i] = m.Sigma(float32(max(0, lastTime-int(float32(i)*stride))))
	}
	return out
}

// smoothStep eases evenly spaced times at both ends with 3u²-2u³.
func smoothStep(m *Model, n int) []float32 {
	if n == 1 {
		return []float32{m.Sigma(lastTime)}
	}
	out := make([]float32, n, n+1)
	for i := range out {
		u := 1 - float32(i)/float32(n)
		ease := float32(u*u) * (3 - float32(2*u))
		out[i] = m.Sigma(roundf(ease * lastTime))
	}
	return out
}

// klOptimal spaces arc tangents of the levels evenly (Sabour et al. 2024, arXiv:2404.14507, theorem 3.1).
func klOptimal(m *Model, n int) []float32 {
	if n == 1 {
		return []float32{m.SigmaMax()}
	}
	low, high := atanf(max(m.SigmaMin(), 1e-6)), atanf(m.SigmaMax())
	out := make([]float32, n, n+1)
	for i := range out {
		t := float32(i) / float32(n-1)
		out[i] = tanf(float32(t*low) + float32((1-t)*high))
	}
	return out
}

// lcmSchedule picks from the fifty times LCM distillation trains on.
func lcmSchedule(m *Model, n int) []float32 {
	const trained = 50
	out := make([]float32, n, n+1)
	for i := range out {
		out[i] = m.Sigma(float32((trained-i*trained/n)*(Timesteps/trained) - 1))
	}
	return out
}

// linearSpace adds a constant increment, so its rounding accumulates; n is at least 2.
func linearSpace(from, to float32, n int) []float32 {
	out := make([]float32, n)
	step := (to - from) / float32(n-1)
	out[0] = from
	for i := 1; i < n; i++ {
		out[i] = out[i-1] + step
	}
	return out
}

// bongTangent joins two arc-tangent ramps, high to middle and middle to low (RES4LYF's bong_tangent).
func bongTangent(m *Model, n int) []float32 {
	high, low := m.SigmaMax(), m.SigmaMin()
	middle := low + float32((high-low)*0.5)
	steps := n + 2
	pivot := int(float32(steps) * 0.6)
	first := int((float32(float32(steps)*0.6) + float32(float32(steps)*0.6)) * 0.5)
	slope := float32(0.2) / (float32(steps) / 40)

	out := tangentRamp(first, slope, float32(pivot), high, middle)
	if len(out) > 0 {
		out = out[:len(out)-1]
	}
	out = append(out, tangentRamp(steps-first, slope, float32(pivot-first), middle, low)...)
	for len(out) < n {
		out = append(out, low)
	}
	return out[:n]
}

// tangentRamp scales an arc tangent centred on pivot to run from one level to another.
func tangentRamp(n int, slope, pivot, from, to float32) []float32 {
	const twoOverPi = 2 / float32(math.Pi)
	at := func(x float32) float32 { return (float32(twoOverPi*atanf(-slope*(x-pivot))) + 1) * 0.5 }
	out := make([]float32, n)
	if n == 0 {
		return out
	}
	high, low := at(0), at(float32(n-1))
	if absf(high-low) < 1e-8 {
		for i := range out {
			out[i] = from
			if n > 1 {
				out[i] += float32((to - from) * (float32(i) / float32(n-1)))
			}
		}
		return out
	}
	inv := 1 / (high - low)
	for i := range out {
		out[i] = float32(float32((at(float32(i))-low)*inv)*(from-to)) + to
	}
	return out
}

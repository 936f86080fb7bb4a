package sample_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/sample"
)

// trained are Stable Diffusion's noise levels in float64, from the definition:
// betas linear in their square root from 0.00085 to 0.012.
func trained() []float64 {
	out := make([]float64, 1000)
	product := 1.0
	from, to := math.Sqrt(0.00085), math.Sqrt(0.012)
	for i := range out {
		b := from + (to-from)*float64(i)/999
		product *= 1 - b*b
		out[i] = math.Sqrt((1 - product) / product)
	}
	return out
}

// at interpolates the logarithm between times, as k-diffusion does.
func at(levels []float64, t float64) float64 {
	low := math.Floor(t)
	i, w := int(low), t-low
	j := min(i+1, 999)
	return math.Exp((1-w)*math.Log(levels[i]) + w*math.Log(levels[j]))
}

// formulas are the schedules' definitions, written from their sources.
var formulas = map[sample.Scheduler]func(s []float64, n, i int) float64{
	sample.Discrete: func(s []float64, n, i int) float64 { return at(s, 999-999/float64(n-1)*float64(i)) },
	sample.Karras: func(s []float64, n, i int) float64 {
		a, b := math.Pow(s[999], 1.0/7), math.Pow(s[0], 1.0/7)
		return math.Pow(a+float64(i)/float64(n-1)*(b-a), 7)
	},
	sample.Exponential: func(s []float64, n, i int) float64 {
		return math.Exp(math.Log(s[999]) + float64(i)/float64(n-1)*(math.Log(s[0])-math.Log(s[999])))
	},
	sample.SGMUniform: func(s []float64, n, i int) float64 { return at(s, 999-999*float64(i)/float64(n)) },
	sample.Simple:     func(s []float64, n, i int) float64 { return s[999-int(float64(i)*1000/float64(n))] },
	sample.SmoothStep: func(s []float64, n, i int) float64 {
		u := 1 - float64(i)/float64(n)
		return s[int(math.Round(u*u*(3-2*u)*999))]
	},
	sample.KLOptimal: func(s []float64, n, i int) float64 {
		t := float64(i) / float64(n-1)
		return math.Tan(t*math.Atan(s[0]) + (1-t)*math.Atan(s[999]))
	},
	sample.LCMScheduler: func(s []float64, n, i int) float64 { return s[(50-i*50/n)*20-1] },
}

func TestSchedulesFollowTheirDefinitions(t *testing.T) {
	levels := trained()
	m, err := sample.NewModel(sample.Eps, sample.ModelOptions{})
	require.NoError(t, err)
	for s, formula := range formulas {
		for _, n := range []int{2, 4, 20, 37} {
			got, err := m.Sigmas(s, n, sample.ScheduleOptions{})
			require.NoError(t, err)
			require.Len(t, got, n+1, s)
			require.Zero(t, got[n], s)
			for i, v := range got[:n] {
				require.InEpsilon(t, formula(levels, n, i), v, 2e-4, "%s, step %d of %d", s, i, n)
			}
		}
	}
}

func TestEveryScheduleFallsToZero(t *testing.T) {
	for _, p := range []sample.Prediction{sample.Eps, sample.V, sample.EDMV, sample.Flow, sample.FluxFlow} {
		m, err := sample.NewModel(p, sample.ModelOptions{})
		require.NoError(t, err)
		for _, s := range sample.Schedulers() {
			for _, n := range []int{1, 2, 10, 28} {
				got, err := m.Sigmas(s, n, sample.ScheduleOptions{Family: sample.SD1, Tokens: 1024})
				if err != nil {
					continue // a scheduler that does not suit the prediction says so
				}
				require.Zero(t, got[len(got)-1], "%s %s", p, s)
				for i := 1; i < len(got); i++ {
					require.LessOrEqual(t, got[i], got[i-1], "%s, %s, %d steps: %v", p, s, n, got)
					require.False(t, math.IsNaN(float64(got[i])))
				}
			}
		}
		_, err = m.Sigmas(sample.Karras, 0, sample.ScheduleOptions{})
		require.Error(t, err)
		_, err = m.Sigmas(sample.Karras, sample.MaxSteps+1, sample.ScheduleOptions{})
		require.Error(t, err)
	}
}

// AYS's own table for SD 1.5 at ten steps (Sabour et al. 2024).
func TestAYSTable(t *testing.T) {
	m, err := sample.NewModel(sample.Eps, sample.ModelOptions{})
	require.NoError(t, err)
	got, err := m.Sigmas(sample.AYS, 10, sample.ScheduleOptions{Family: sample.SD1})
	require.NoError(t, err)
	for i, want := range []float64{14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152} {
		require.InEpsilon(t, want, got[i], 5e-3, i) // the table has three places
	}
}

func TestNames(t *testing.T) {
	for _, s := range sample.Schedulers() {
		back, err := sample.ParseScheduler(s.String())
		require.NoError(t, err)
		require.Equal(t, s, back)
	}
	for _, m := range sample.Methods() {
		back, err := sample.ParseMethod(m.String())
		require.NoError(t, err)
		require.Equal(t, m, back)
	}
	_, err := sample.ParseMethod("magic")
	require.ErrorContains(t, err, "magic")
}

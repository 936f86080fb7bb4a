package sample_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/rng"
	"github.com/sdtool/sdtool/engine/sample"
)

// gaussian is the denoiser of data that is normal with deviation 0.5 around 0.3:
// the whole walk is known, x(sigma) - mean grows with sqrt(0.25 + sigma²).
func gaussian(_ context.Context, x []float32, sigma float32, _ int) ([]float32, error) {
	out := make([]float32, len(x))
	s2 := float64(sigma) * float64(sigma)
	for i, v := range x {
		out[i] = float32((0.25*float64(v) + s2*0.3) / (0.25 + s2))
	}
	return out, nil
}

// exact ends the walk of the probability flow from x at sigma.
func exact(x, sigma float64) float64 {
	return 0.3 + (x-0.3)*0.5/math.Sqrt(0.25+sigma*sigma)
}

func walk(t *testing.T, m sample.Method, n int, eta *float32) []float32 {
	t.Helper()
	model, err := sample.NewModel(sample.Eps, sample.ModelOptions{})
	require.NoError(t, err)
	sigmas, err := model.Sigmas(sample.Karras, n, sample.ScheduleOptions{})
	require.NoError(t, err)
	x := make([]float32, 64)
	rng.New(rng.CUDA, 5).Normal(x)
	for i := range x {
		x[i] *= sigmas[0]
	}
	var last []float32
	o := sample.Options{Noise: rng.New(rng.CUDA, 6), Eta: m.DefaultEta(), Uncond: func() []float32 { return last }}
	if eta != nil {
		o.Eta = *eta
	}
	out, err := sample.Run(context.Background(), m, x, sigmas, func(ctx context.Context, x []float32, sigma float32, step int) ([]float32, error) {
		var err error
		last, err = gaussian(ctx, x, sigma, step)
		return last, err
	}, o)
	require.NoError(t, err)
	if eta != nil && *eta == 0 {
		for i := range x {
			x[i] = float32(exact(float64(x[i]), float64(sigmas[0])))
		}
		worst := 0.0
		for i := range x {
			worst = max(worst, math.Abs(float64(out[i]-x[i])))
		}
		return []float32{float32(worst)}
	}
	return out
}

// A sampler without noise solves the equation: the error falls as steps grow.
func TestDeterministicSamplersConverge(t *testing.T) {
	zero := float32(0)
	limits := map[sample.Method]float64{
		sample.Euler: 0.05, sample.Heun: 0.01, sample.DPM2: 0.01, sample.DPMPP2M: 0.01, sample.DPMPP2Mv2: 0.05,
		sample.IPNDM: 0.05, sample.IPNDMV: 0.05, sample.DDIMTrailing: 0.08,
	}
	for m, limit := range limits {
		coarse, fine := walk(t, m, 10, &zero)[0], walk(t, m, 80, &zero)[0]
		require.Less(t, fine, coarse, m)
		require.Less(t, float64(fine), limit, m)
	}
}

// A sampler with noise ends in the data's distribution, whatever the path.
func TestNoisySamplersEndInTheDistribution(t *testing.T) {
	for _, m := range sample.Methods() {
		out := walk(t, m, 40, nil)
		var sum, squares float64
		for _, v := range out {
			require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0), m)
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		mean := sum / float64(len(out))
		deviation := math.Sqrt(squares/float64(len(out)) - mean*mean)
		require.InDelta(t, 0.3, mean, 0.3, m)
		require.Less(t, deviation, 0.9, m)
	}
}

func TestSameSeedSameResult(t *testing.T) {
	for _, m := range sample.Methods() {
		require.Equal(t, walk(t, m, 7, nil), walk(t, m, 7, nil), m)
	}
}

func TestErrors(t *testing.T) {
	boom := errors.New("boom")
	fail := func(context.Context, []float32, float32, int) ([]float32, error) { return nil, boom }
	_, err := sample.Run(context.Background(), sample.Euler, make([]float32, 4), []float32{1, 0}, fail, sample.Options{})
	require.ErrorIs(t, err, boom)
	short := func(context.Context, []float32, float32, int) ([]float32, error) { return make([]float32, 3), nil }
	_, err = sample.Run(context.Background(), sample.Euler, make([]float32, 4), []float32{1, 0}, short, sample.Options{})
	require.ErrorContains(t, err, "expected 4 values, found 3")
	_, err = sample.Run(context.Background(), sample.EulerA, make([]float32, 4), []float32{1, 0}, gaussian, sample.Options{})
	require.ErrorIs(t, err, sample.ErrMissingOption)
	_, err = sample.Run(context.Background(), sample.Euler, make([]float32, 4), []float32{1}, gaussian, sample.Options{})
	require.ErrorContains(t, err, "at least 2 noise levels")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = sample.Run(ctx, sample.Euler, make([]float32, 4), []float32{1, 0}, gaussian, sample.Options{})
	require.ErrorIs(t, err, context.Canceled)
}

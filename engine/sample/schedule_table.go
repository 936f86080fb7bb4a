package sample

import (
	"fmt"
	"math"
)

// Align-your-steps levels for ten steps (Sabour et al. 2024, arXiv:2404.14507, as published on the paper's page).
var aysLevels = map[Family][]float32{
	SD1: {
		14.6146412293, 6.4745760956, 3.8636745985, 2.6946151520, 1.8841921177, 1.3943805092, 0.9642583904,
		0.6523686016, 0.3977456272, 0.1515232662, 0.0291671582,
	},
	SDXL: {
		14.6146412293, 6.3184485287, 3.7681790315, 2.1811480769, 1.3405244945, 0.8620721141, 0.5550693289,
		0.3798540708, 0.2332364134, 0.1114188177, 0.0291671582,
	},
	SVD: {700, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002},
}

func ays(_ *Model, n int, o ScheduleOptions) ([]float32, error) {
	levels, ok := aysLevels[o.Family]
	if !ok {
		return nil, fmt.Errorf("no tuned noise levels for this model family: they exist for SD 1.x, SDXL and SVD")
	}
	return endAtZero(stretch(levels, n+1)), nil
}

// gits uses the levels tuned with the coefficient 1.20, the only one stable-diffusion.cpp reaches.
func gits(_ *Model, n int, _ ScheduleOptions) ([]float32, error) {
	if n < 2 {
		return nil, fmt.Errorf("expected at least 2 steps, found %d", n)
	}
	last := gitsLevels[len(gitsLevels)-1]
	if n > 20 {
		return endAtZero(stretch(last, n+1)), nil
	}
	return endAtZero(append([]float32(nil), gitsLevels[n-2]...)), nil
}

func endAtZero(levels []float32) []float32 {
	levels[len(levels)-1] = 0
	return levels
}

// stretch resamples falling levels to n points, linear in the logarithm.
func stretch(levels []float32, n int) []float32 {
	out := make([]float32, n)
	if n == len(levels) {
		copy(out, levels)
		return out
	}
	known := len(levels)
	x, at := linearSpace(0, 1, known), linearSpace(0, 1, n)
	y := make([]float32, known)
	for i := range y {
		y[i] = logf(levels[known-1-i])
	}
	at[n-1] = min(at[n-1], x[known-1])
	for i, j := 0, 0; i < n; i++ {
		for j < known-2 && (x[j] > at[i] || at[i] > x[j+1]) {
			j++
		}
		w := float64(at[i]-x[j]) / float64(x[j+1]-x[j])
		v := float64(float64(y[j])*(1-w)) + float64(float64(y[j+1])*w)
		out[n-1-i] = float32(math.Exp(v))
	}
	return out
}

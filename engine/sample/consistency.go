package sample

import (
	"math"
	"sort"
)

// lcm jumps to the prediction and noises it again (latent consistency models).
func (r *run) lcm() error {
	clip := value(r.o.Args.NoiseClipStd, 0)
	first := value(r.o.Args.NoiseScaleStart, 1)
	last := value(r.o.Args.NoiseScaleEnd, first)
	for i := range r.steps() {
		den, err := r.denoise(r.x, r.sigmas[i], i, false)
		if err != nil {
			return err
		}
		copy(r.x, den)
		to := r.sigmas[i+1]
		if to <= 0 {
			continue
		}
		if r.o.Flow {
			r.scale(1 - to)
		}
		noise := r.draw()
		if clip > 0 {
			clampStd(noise, clip)
		}
		var t float32
		if r.steps() > 1 {
			t = float32(i) / float32(r.steps()-1)
		}
		move(r.x, noise, to*(first+float32((last-first)*t)))
	}
	return nil
}

// clampStd cuts values at k of their own standard deviations.
func clampStd(v []float32, k float32) {
	if len(v) == 0 {
		return
	}
	var mean, variance float64
	for _, x := range v {
		mean += float64(x)
	}
	mean /= float64(len(v))
	for _, x := range v {
		c := float64(x) - mean
		variance += float64(c * c)
	}
	limit := k * float32(math.Sqrt(variance/float64(len(v))))
	for i, x := range v {
		v[i] = max(-limit, min(limit, x))
	}
}

// tcdTable holds the trained alphas_cumprod and noise levels TCD looks times up in; always Stable Diffusion's own.
func tcdTable() (alphas, sigmas []float64) {
	from, to := sqrtf(0.00085), sqrtf(0.0120)
	product := 1.0
	for i := range Timesteps {
		root := float64(from + float32((to-from)*(float32(i)/(Timesteps-1))))
		product *= 1 - float64(root*root)
		alphas = append(alphas, product)
		sigmas = append(sigmas, math.Sqrt((1-product)/product))
	}
	return alphas, sigmas
}

// nearestTime is the trained time whose noise level is closest, the lower of two equals.
func nearestTime(sigmas []float64, sigma float32) int {
	s := float64(sigma)
	high := sort.SearchFloat64s(sigmas, s)
	switch {
	case high == 0:
		return 0
	case high == len(sigmas):
		return len(sigmas) - 1
	case math.Abs(sigmas[high]-s) < math.Abs(sigmas[high-1]-s):
		return high
	}
	return high - 1
}

// tcd is trajectory consistency sampling; eta is the paper's gamma.
func (r *run) tcd() error {
	alphas, sigmas := tcdTable()
	eta := r.o.Eta
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, false)
		if err != nil {
			return err
		}
		time := int(math.Floor(float64((1 - eta) * float32(nearestTime(sigmas, to)))))
		alphaTo := 1 / (float32(to*to) + 1)
		alphaS := float32(alphas[min(max(time, 0), Timesteps-1)])
		p, q := sqrtf(alphaS/alphaTo), sqrtf((1-alphaS)/alphaTo)
		for j, x := range r.x {
			r.x[j] = float32(p*den[j]) + float32(q*((x-den[j])/sigma))
		}
		if eta > 0 && to > 0 {
			r.scale(sqrtf(alphaTo / alphaS))
			r.addNoise(sqrtf(1/alphaTo - 1/alphaS))
		}
	}
	return nil
}

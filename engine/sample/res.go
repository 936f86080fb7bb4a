package sample

import "math"

// phi1 is (e^t - 1)/t and phi2 is (phi1(t) - 1)/t, by series near zero (exponential integrators, arXiv:2308.02157).
func phi1(t float32) float32 {
	if absf(t) < 1e-6 {
		return 1 + float32(t*0.5) + float32(t*t)/6
	}
	return (expf(t) - 1) / t
}

func phi2(t float32) float32 {
	if absf(t) < 1e-6 {
		return 0.5 + t/6 + float32(t*t)/24
	}
	return (phi1(t) - 1) / t
}

func finiteOrZero(v float32) float32 {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return 0
	}
	return v
}

// resMultistep is the refined exponential solver's multistep form, second order.
func (r *run) resMultistep() error {
	old := make([]float32, len(r.x))
	var oldDown float32
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, false)
		if err != nil {
			return err
		}
		a := r.ancestral(sigma, to)
		if a.down == 0 || i == 0 {
			r.follow(den, sigma, a.down-sigma)
		} else {
			h := -logf(a.down) - -logf(sigma)
			c2 := (-logf(r.sigmas[i-1]) - -logf(oldDown)) / h
			p1, p2 := phi1(-h), phi2(-h)
			b1, b2 := finiteOrZero(p1-p2/c2), finiteOrZero(p2/c2)
			keep := expf(-h)
			for j, x := range r.x {
				r.x[j] = float32(keep*x) + float32(h*(float32(b1*den[j])+float32(b2*old[j])))
			}
		}
		if to > 0 {
			r.renoise(a)
		}
		copy(old, den)
		oldDown = a.down
	}
	return nil
}

// res2s is the refined exponential solver's single-step form with its second look at half a step.
func (r *run) res2s() error {
	const c2 = 0.5
	x2, eps := make([]float32, len(r.x)), make([]float32, len(r.x))
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, true)
		if err != nil {
			return err
		}
		a := r.ancestral(sigma, to)
		if a.down == 0 || sigma == 0 {
			copy(r.x, den)
		} else {
			t := -logf(sigma)
			h := -logf(a.down) - t
			b2 := phi2(-h) / c2
			b1 := phi1(-h) - b2
			f := h * float32(c2*phi1(-h*c2))
			for j, x := range r.x {
				eps[j] = den[j] - x
				x2[j] = x + float32(eps[j]*f)
			}
			if den, err = r.denoise(x2, expf(-(t + float32(h*c2))), i, false); err != nil {
				return err
			}
			for j, x := range r.x {
				r.x[j] = x + float32(h*(float32(b1*eps[j])+float32(b2*(den[j]-x))))
			}
		}
		if to > 0 {
			r.renoise(a)
		}
	}
	return nil
}

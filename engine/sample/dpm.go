package sample

import "math"

// dpm2 looks a second time at the geometric middle of a step (DPM-Solver-2 as k-diffusion writes it).
func (r *run) dpm2() error {
	x2 := make([]float32, len(r.x))
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, true)
		if err != nil {
			return err
		}
		if to == 0 {
			r.follow(den, sigma, to-sigma)
			continue
		}
		mid := float32(math.Exp(0.5 * (math.Log(float64(sigma)) + math.Log(float64(to)))))
		for j, x := range r.x {
			x2[j] = x + float32((x-den[j])/sigma*(mid-sigma))
		}
		if den, err = r.denoise(x2, mid, i, false); err != nil {
			return err
		}
		for j := range r.x {
			r.x[j] += float32((x2[j] - den[j]) / mid * (to - sigma))
		}
	}
	return nil
}

// dpmpp2sAncestral is DPM-Solver++(2S) with ancestral noise.
func (r *run) dpmpp2sAncestral() error {
	if r.o.Flow {
		return r.dpmpp2sAncestralFlow()
	}
	x2 := make([]float32, len(r.x))
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, true)
		if err != nil {
			return err
		}
		a := ancestralStep(sigma, to, r.o.Eta)
		if a.down == 0 {
			copy(r.x, den)
		} else {
			t, next := negLog(sigma), negLog(a.down)
			h := next - t
			mid := expNeg(t + float32(0.5*h))
			p, q := mid/expNeg(t), expNegMinus1(h*0.5)
			for j, x := range r.x {
				x2[j] = float32(p*x) - float32(q*den[j])
			}
			if den, err = r.denoise(x2, mid, i, false); err != nil {
				return err
			}
			r.blend(expNeg(next)/expNeg(t), -expNegMinus1(h), den)
		}
		if to > 0 {
			r.addNoise(a.up)
		}
	}
	return nil
}

// dpmpp2sAncestralFlow is the same on the straight path. The midpoint is taken in the log of signal over noise; a
// first step from pure noise has it at the step's own level, and one look is enough.
func (r *run) dpmpp2sAncestralFlow() error {
	x2 := make([]float32, len(r.x))
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		pure := 1-float64(sigma) < 1e-6
		den, err := r.denoise(r.x, sigma, i, !pure)
		if err != nil {
			return err
		}
		if to == 0 {
			copy(r.x, den)
			continue
		}
		a := ancestralStepFlow(sigma, to, r.o.Eta)
		if !pure {
			odds := sqrtf((1 - sigma) / sigma * ((1 - a.down) / a.down))
			mid := 1 / (odds + 1)
			ratio := mid / sigma
			for j, x := range r.x {
				x2[j] = float32(x*ratio) + float32(den[j]*(1-ratio))
			}
			if den, err = r.denoise(x2, mid, i, false); err != nil {
				return err
			}
		}
		ratio := a.down / sigma
		r.blend(ratio, 1-ratio, den)
		if r.o.Eta > 0 {
			r.scale(a.alpha)
			r.addNoise(a.up)
		}
	}
	return nil
}

// dpmpp2m is DPM-Solver++(2M).
func (r *run) dpmpp2m() error {
	return r.multistep2m(func(last, h float32) (ratio, weight float32) { return last / h, h })
}

// dpmpp2mv2 takes the longer of two steps over the shorter, and their mean as the step, which is smoother where
// step lengths jump.
func (r *run) dpmpp2mv2() error {
	return r.multistep2m(func(last, h float32) (ratio, weight float32) {
		low, high := min(last, h), max(last, h)
		return high / low, (high + low) / 2
	})
}

func (r *run) multistep2m(lengths func(last, h float32) (ratio, weight float32)) error {
	old := make([]float32, len(r.x))
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, false)
		if err != nil {
			return err
		}
		t := negLog(sigma)
		h := negLog(to) - t
		keep := to / sigma
		if i == 0 || to == 0 {
			r.blend(keep, -expNegMinus1(h), den)
		} else {
			ratio, weight := lengths(t-negLog(r.sigmas[i-1]), h)
			b := expNegMinus1(weight)
			past := 1 / (2 * ratio)
			for j, x := range r.x {
				d := float32((1+past)*den[j]) - float32(past*old[j])
				r.x[j] = float32(keep*x) - float32(b*d)
			}
		}
		copy(old, den)
	}
	return nil
}

// dpmpp2mSDE is DPM-Solver++(2M) SDE, midpoint form; noise comes from the source or from the Brownian tree.
func (r *run) dpmpp2mSDE() error {
	old := make([]float32, len(r.x))
	var last float32
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, false)
		if err != nil {
			return err
		}
		if to == 0 {
			copy(r.x, den)
			copy(old, den)
			continue
		}
		h := -logf(to) - -logf(sigma)
		etaH := r.o.Eta * h
		b := -expm1f(-h - etaH)
		r.blend(to/sigma*expf(-etaH), b, den)
		if i > 0 {
			c := 0.5 * b / (last / h)
			for j := range r.x {
				r.x[j] += float32(c * (den[j] - old[j]))
			}
		}
		if r.o.Eta > 0 {
			scale := to * sqrtf(-expm1f(-2*etaH))
			if r.tree == nil {
				r.addNoise(scale)
			} else {
				r.tree.add(r.x, float64(sigma), float64(to), scale)
			}
		}
		last = h
		copy(old, den)
	}
	return nil
}

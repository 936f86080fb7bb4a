package sample

// euler is the first-order step of Karras et al. 2022, algorithm 1 without churn.
func (r *run) euler() error {
	for i := range r.steps() {
		sigma := r.sigmas[i]
		den, err := r.denoise(r.x, sigma, i, false)
		if err != nil {
			return err
		}
		r.follow(den, sigma, r.sigmas[i+1]-sigma)
	}
	return nil
}

// follow moves the latent by dt along its gradient (x-den)/sigma.
func (r *run) follow(den []float32, sigma, dt float32) {
	for j, x := range r.x {
		r.x[j] = x + float32((x-den[j])/sigma*dt)
	}
}

// ancestral splits a step into a fall to down and noise of size up on top; alpha scales the latent in between.
type ancestral struct{ down, up, alpha float32 }

// ancestralStep follows k-diffusion for variance-exploding noise.
func ancestralStep(from, to, eta float32) ancestral {
	a := ancestral{down: to, alpha: 1}
	if eta <= 0 {
		return a
	}
	from2, to2 := float32(from*from), float32(to*to)
	if from2 > 0 {
		a.up = min(to, eta*sqrtf(max(to2*(from2-to2)/from2, 0)))
	}
	a.down = 0
	if down2 := to2 - float32(a.up*a.up); down2 > 0 {
		a.down = sqrtf(down2)
	}
	return a
}

// ancestralStepFlow keeps signal and noise on the straight path; eta above one would leave it and counts as one.
func ancestralStepFlow(from, to, eta float32) ancestral {
	a := ancestral{down: to, alpha: 1}
	if eta <= 0 || from <= 0 || to <= 0 {
		return a
	}
	ratio := to / from
	down := to * (1 + float32((ratio-1)*min(eta, 1)))
	down = max(0, min(to, down))
	rest := 1 - down
	if rest <= 0 {
		return a
	}
	a.down, a.alpha = down, (1-to)/rest
	term := max(-1, min(1, down/to*a.alpha))
	a.up = to * sqrtf(max(1-float32(term*term), 0))
	return a
}

func (r *run) ancestral(from, to float32) ancestral {
	if r.o.Flow {
		return ancestralStepFlow(from, to, r.o.Eta)
	}
	return ancestralStep(from, to, r.o.Eta)
}

// renoise adds an ancestral step's noise, if it has any.
func (r *run) renoise(a ancestral) {
	if a.up <= 0 {
		return
	}
	if r.o.Flow {
		r.scale(a.alpha)
	}
	r.addNoise(a.up)
}

// eulerAncestral falls further than asked and adds noise back; with eta 0 it is DDIM.
func (r *run) eulerAncestral() error {
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, false)
		if err != nil {
			return err
		}
		if to == 0 {
			copy(r.x, den)
			continue
		}
		a := ancestral{down: to}
		if r.o.Eta != 0 {
			a = r.ancestral(sigma, to)
		}
		ratio := a.down / sigma
		r.blend(ratio, 1-ratio, den)
		r.renoise(a)
	}
	return nil
}

// heun is the second-order step of Karras et al. 2022, algorithm 1 without churn.
func (r *run) heun() error {
	d, x2 := make([]float32, len(r.x)), make([]float32, len(r.x))
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, true)
		if err != nil {
			return err
		}
		dt := to - sigma
		if to == 0 {
			r.follow(den, sigma, dt)
			continue
		}
		for j, x := range r.x {
			d[j] = (x - den[j]) / sigma
			x2[j] = x + float32(d[j]*dt)
		}
		if den, err = r.denoise(x2, to, i, false); err != nil {
			return err
		}
		for j := range r.x {
			mean := (d[j] + (x2[j]-den[j])/to) / 2
			r.x[j] += float32(mean * dt)
		}
	}
	return nil
}

// eulerCFGPP follows the unguided gradient from the guided prediction (Chung et al. 2024, arXiv:2406.08070).
func (r *run) eulerCFGPP() error {
	for i := range r.steps() {
		if err := r.cfgPP(i, r.sigmas[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) eulerAncestralCFGPP() error {
	for i := range r.steps() {
		a := ancestralStep(r.sigmas[i], r.sigmas[i+1], r.o.Eta)
		if err := r.cfgPP(i, a.down); err != nil {
			return err
		}
		if r.sigmas[i+1] > 0 {
			r.addNoise(a.up)
		}
	}
	return nil
}

// cfgPP sets the latent to den + (x-uncond)/sigma·down.
func (r *run) cfgPP(i int, down float32) error {
	sigma := r.sigmas[i]
	den, err := r.denoise(r.x, sigma, i, false)
	if err != nil {
		return err
	}
	un, err := r.uncond(i)
	if err != nil {
		return err
	}
	for j, x := range r.x {
		r.x[j] = den[j] + float32((x-un[j])/sigma*down)
	}
	return nil
}

// eulerGE extrapolates the gradient from the previous one (Permenter and Yuan 2023, arXiv:2306.04848).
func (r *run) eulerGE() error {
	gamma := value(r.o.Args.Gamma, 2)
	old := make([]float32, len(r.x))
	for i := range r.steps() {
		sigma, to := r.sigmas[i], r.sigmas[i+1]
		den, err := r.denoise(r.x, sigma, i, false)
		if err != nil {
			return err
		}
		if to == 0 {
			copy(r.x, den)
			continue
		}
		a := r.ancestral(sigma, to)
		dt := a.down - sigma
		for j, x := range r.x {
			d := (x - den[j]) / sigma
			use := d
			if i > 0 {
				use = float32(d*gamma) + float32(old[j]*(1-gamma))
			}
			r.x[j] = x + float32(use*dt)
			old[j] = d
		}
		r.renoise(a)
	}
	return nil
}

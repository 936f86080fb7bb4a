package sample

// erLevel turns noise levels into the solver's lambda and signal factor; flow levels stay clear of both ends.
func (r *run) erLevel(sigma float32) (lambda, alpha float32) {
	if !r.o.Flow {
		return max(sigma, 1e-6), 1
	}
	s := min(max(sigma, 1e-6), 1-float32(1e-4))
	return s / max(1-s, 1e-6), 1 - s
}

// erNoise is the noise scaling function the solver's authors recommend.
func erNoise(lambda float32) float32 {
	lambda = max(lambda, 0)
	return lambda * (expf(powf(lambda, 0.3)) + 10)
}

// erSDE is the extended reverse-time SDE solver of third order (Cui et al. 2023, arXiv:2309.06169); eta scales
// nothing here, but zero switches the noise off.
func (r *run) erSDE() error {
	sigmas := append([]float32(nil), r.sigmas...)
	lambdas := make([]float32, len(sigmas))
	for i, s := range sigmas {
		if r.o.Flow && s > 1 && i < len(sigmas)-1 {
			sigmas[i] = 1 - float32(1e-4)
		}
		lambdas[i], _ = r.erLevel(sigmas[i])
	}
	n := len(r.x)
	old, oldD := make([]float32, n), make([]float32, n)
	for i := range r.steps() {
		den, err := r.denoise(r.x, sigmas[i], i, false)
		if err != nil {
			return err
		}
		if sigmas[i+1] == 0 {
			copy(r.x, den)
		} else {
			r.erStep(i, sigmas, lambdas, den, old, oldD)
		}
		copy(old, den)
	}
	return nil
}

// erStep makes one step; old is the previous denoised latent and oldD its slope, which is updated.
func (r *run) erStep(i int, sigmas, lambdas, den, old, oldD []float32) {
	s, t := lambdas[i], lambdas[i+1]
	_, alphaS := r.erLevel(sigmas[i])
	_, alphaT := r.erLevel(sigmas[i+1])
	scaledS, scaledT := erNoise(s), erNoise(t)
	var ratioAlpha, ratio float32
	if alphaS > 0 {
		ratioAlpha = alphaT / alphaS
	}
	if scaledS > 0 {
		ratio = scaledT / scaledS
	}
	r.blend(ratioAlpha*ratio, alphaT*(1-ratio), den)
	if i > 0 {
		r.erCorrect(i, lambdas, alphaT, scaledT, den, old, oldD)
	}
	left := float32(t*t) - float32(float32(float32(s*s)*ratio)*ratio)
	if r.o.Eta > 0 && left > 0 {
		r.addNoise(alphaT * sqrtf(left))
	}
}

// erCorrect adds the second- and third-order terms from finite differences of the denoised latents.
func (r *run) erCorrect(i int, lambdas []float32, alphaT, scaledT float32, den, old, oldD []float32) {
	const points = 200
	third := i > 1
	s, t := lambdas[i], lambdas[i+1]
	dt := t - s
	width := -dt / points
	var sum, sumU float32
	for p := range points {
		at := t + float32(float32(p)*width)
		scaled := erNoise(at)
		if scaled <= 0 {
			continue
		}
		sum += 1 / scaled
		if third {
			sumU += (at - s) / scaled
		}
	}
	sum *= width
	gapD := s - lambdas[i-1]
	if absf(gapD) <= 1e-12 {
		return
	}
	coeffD := alphaT * (dt + float32(sum*scaledT))
	var gapU, coeffU float32
	if third {
		gapU = (s - lambdas[i-2]) * 0.5
		third = absf(gapU) > 1e-12
		coeffU = alphaT * (float32(float32(0.5*dt)*dt) + float32(float32(sumU*width)*scaledT))
	}
	for j := range r.x {
		d := (den[j] - old[j]) / gapD
		r.x[j] += float32(coeffD * d)
		if third {
			r.x[j] += float32(coeffU * ((d - oldD[j]) / gapU))
		}
		oldD[j] = d
	}
}

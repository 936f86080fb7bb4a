package sample

// history keeps the latest gradients, newest last.
type history struct {
	grads [][]float32
	limit int
}

// push stores a copy of g, reusing the memory of the oldest when full.
func (h *history) push(g []float32) {
	if h.limit <= 0 {
		return
	}
	if len(h.grads) < h.limit {
		h.grads = append(h.grads, append([]float32(nil), g...))
		return
	}
	oldest := h.grads[0]
	copy(oldest, g)
	copy(h.grads, h.grads[1:])
	h.grads[len(h.grads)-1] = oldest
}

// back returns the k-th newest gradient, k from 1.
func (h *history) back(k int) []float32 { return h.grads[len(h.grads)-k] }

// Adams-Bashforth weights, newest gradient first; each row is divided by its last entry.
var adams = [...][]float32{
	3: {23, -16, 5, 12},
	4: {55, -59, 37, -9, 24},
}

// ipndm is the pseudo linear multistep method of order four.
func (r *run) ipndm() error {
	return r.linearMultistep(func(int) []float32 { return []float32{3, -1, 2} })
}

// ipndmV lets the second-order weights follow the ratio of step lengths.
func (r *run) ipndmV() error {
	return r.linearMultistep(func(i int) []float32 {
		ratio := (r.sigmas[i+1] - r.sigmas[i]) / (r.sigmas[i] - r.sigmas[i-1])
		return []float32{2 + ratio, -ratio, 2}
	})
}

func (r *run) linearMultistep(second func(i int) []float32) error {
	past := history{limit: 3}
	d := make([]float32, len(r.x))
	for i := range r.steps() {
		sigma := r.sigmas[i]
		den, err := r.denoise(r.x, sigma, i, false)
		if err != nil {
			return err
		}
		for j, x := range r.x {
			d[j] = (x - den[j]) / sigma
		}
		dt := r.sigmas[i+1] - sigma
		switch order := min(4, i+1); order {
		case 1:
			for j := range r.x {
				r.x[j] += float32(d[j] * dt)
			}
		case 2:
			r.combine(d, &past, second(i), dt)
		default:
			r.combine(d, &past, adams[order], dt)
		}
		past.push(d)
	}
	return nil
}

// combine moves the latent along a weighted sum of gradients.
func (r *run) combine(d []float32, past *history, weights []float32, dt float32) {
	n := len(weights) - 1
	for j := range r.x {
		sum := float32(weights[0] * d[j])
		for k := 1; k < n; k++ {
			sum += float32(weights[k] * past.back(k)[j])
		}
		r.x[j] += float32(sum / weights[n] * dt)
	}
}

// lms integrates the polynomial through past gradients (k-diffusion's linear multistep), reading the history
// Args.HistoryShift entries newer than the polynomial assumes.
func (r *run) lms() error {
	order := min(value(r.o.Args.MaxOrder, 4), r.steps())
	shift, divisions := value(r.o.Args.HistoryShift, 1), value(r.o.Args.Divisions, 1000)
	past := history{limit: order - 1}
	d := make([]float32, len(r.x))
	for i := range r.steps() {
		den, err := r.denoise(r.x, r.sigmas[i], i, false)
		if err != nil {
			return err
		}
		for j, x := range r.x {
			d[j] = (x - den[j]) / r.sigmas[i]
		}
		now := min(order, i+1)
		move(r.x, d, r.lagrangeIntegral(now, i, 0, divisions))
		held := len(past.grads)
		for c := 2; c <= now && held > 0; c++ {
			at := min(held-1, held+1-c+shift)
			move(r.x, past.grads[at], r.lagrangeIntegral(now, i, c-1, divisions))
		}
		past.push(d)
	}
	return nil
}

func move(x, d []float32, f float32) {
	for j := range x {
		x[j] += float32(d[j] * f)
	}
}

// lagrangeIntegral integrates over step i, by midpoints, the polynomial that is one at noise level i-j and zero at
// the others of the last order levels.
func (r *run) lagrangeIntegral(order, i, j, divisions int) float32 {
	start := r.sigmas[i]
	dx := (r.sigmas[i+1] - start) / float32(divisions)
	first := start + float32(0.5*dx)
	own := r.sigmas[i-j]
	var sum float32
	for h := range divisions {
		at := float32(float32(h)*dx) + first
		prod := float32(1)
		for k := range order {
			if other := r.sigmas[i-k]; k != j {
				prod *= (at - other) / (own - other)
			}
		}
		sum += prod
	}
	return sum * dx
}

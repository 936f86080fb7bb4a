package sample

import (
	"fmt"
	"math"
)

// unitTimes calls level with times falling evenly from 1 towards 0 and ends at zero.
func unitTimes(n int, level func(t float32) float32) []float32 {
	out := make([]float32, n+1)
	for i := range n {
		out[i] = level(1 - float32(i)/float32(n))
	}
	return out
}

// anchored is a line through two (tokens, shift) points, read at tokens.
func anchored(tokens int, x0, y0, x1, y1 float32) float32 {
	slope := (y1 - y0) / (x1 - x0)
	return float32(float32(tokens)*slope) + (y0 - float32(slope*x0))
}

// flux shifts evenly spaced times by the picture's size (Black Forest Labs' published sampling code).
func flux(_ *Model, n int, o ScheduleOptions) ([]float32, error) {
	mu := anchored(o.Tokens, 256, value(o.Args.BaseShift, 0.5), 4096, value(o.Args.MaxShift, 1.15))
	return unitTimes(n, func(t float32) float32 { return fluxTimeShift(mu, t) }), nil
}

// flux2 shifts by a value fitted to size and step count (Black Forest Labs' published sampling code).
func flux2(_ *Model, n int, o ScheduleOptions) ([]float32, error) {
	tokens := float32(o.Tokens)
	at200 := float32(0.00016927*tokens) + 0.45666666
	mu := at200
	if o.Tokens <= 4300 {
		at10 := float32(8.73809524e-05*tokens) + 1.89833333
		slope := (at200 - at10) / 190
		mu = float32(slope*float32(n)) + (at200 - float32(200*slope))
	}
	return unitTimes(n, func(t float32) float32 {
		if t >= 1 {
			return 1
		}
		return fluxTimeShift(mu, t)
	}), nil
}

// ltx2 shifts by token count and stretches the levels so that the last before zero is the terminal one.
func ltx2(_ *Model, n int, o ScheduleOptions) ([]float32, error) {
	tokens := o.Tokens
	if tokens <= 0 {
		tokens = 4096
	}
	e := expf(anchored(tokens, 1024, value(o.Args.BaseShift, 0.95), 4096, value(o.Args.MaxShift, 2.05)))
	out := unitTimes(n, func(t float32) float32 { return e / (e + (1/t - 1)) })
	if !value(o.Args.Stretch, true) || len(out) <= 2 {
		return out, nil
	}
	terminal := min(max(value(o.Args.Terminal, 0.1), 0), 0.99)
	if scale := (1 - out[n-1]) / (1 - terminal); scale > 1e-8 {
		for i := range n {
			out[i] = 1 - (1-out[i])/scale
		}
	}
	return out, nil
}

// logitNormal spaces levels by quantiles of a logistic-normal law (Ideogram's published scheduler).
func logitNormal(_ *Model, n int, o ScheduleOptions) ([]float32, error) {
	const knownTokens = 512 * 512 / (16 * 16)
	mean, std := value(o.Args.Mu, 0), value(o.Args.Std, 1.75)
	if o.Tokens > 0 && value(o.Args.ResolutionAware, true) {
		mean += float32(0.5 * logf(float32(o.Tokens)/knownTokens))
	}
	low := sigmoid(0.5 * value(o.Args.LogSNRMin, -15))
	high := sigmoid(0.5 * value(o.Args.LogSNRMax, 18))
	out := make([]float32, n+1)
	for i := range n {
		t := float32(i) / float32(n)
		z := float32(-normalQuantile(float64(t)))
		out[i] = max(low, min(high, sigmoid(mean+float32(std*z))))
	}
	return out, nil
}

func sigmoid(x float32) float32 { return 1 / (1 + expf(-x)) }

// Coefficients of Acklam's rational approximation to the normal quantile.
var (
	acklamA = [...]float64{
		-3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02,
		1.383577518672690e+02, -3.066479806614716e+01, 2.506628277459239e+00,
	}
	acklamB = [...]float64{
		-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
		6.680131188771972e+01, -1.328068155288572e+01, 1,
	}
	acklamC = [...]float64{
		-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
		-2.549732539343734e+00, 4.374664141464968e+00, 2.938163982698783e+00,
	}
	acklamD = [...]float64{
		7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00, 1,
	}
)

// normalQuantile is Acklam's approximation to the inverse of the normal distribution, good to 1.15e-9 relative.
func normalQuantile(p float64) float64 {
	const edge = 0.02425
	tail := func(q float64) float64 { return horner(acklamC[:], q) / horner(acklamD[:], q) }
	switch {
	case p <= 0:
		return math.Inf(-1)
	case p >= 1:
		return math.Inf(1)
	case p < edge:
		return tail(math.Sqrt(-2 * math.Log(p)))
	case p > 1-edge:
		return -tail(math.Sqrt(-2 * math.Log(1-p)))
	}
	q := p - 0.5
	return horner(acklamA[:], q*q) * q / horner(acklamB[:], q*q)
}

func horner(coefficients []float64, x float64) float64 {
	v := coefficients[0]
	for _, c := range coefficients[1:] {
		v = float64(v*x) + c
	}
	return v
}

// beta spaces times by quantiles of a Beta law (Lee et al. 2024, arXiv:2407.12173), dropping repeats.
func beta(m *Model, n int, o ScheduleOptions) ([]float32, error) {
	a, b := value(o.Args.Alpha, 0.6), value(o.Args.Beta, 0.6)
	if !(a > 0 && b > 0) {
		return nil, fmt.Errorf("expected positive alpha and beta, found %v and %v", a, b)
	}
	if n == 1 {
		return []float32{m.Sigma(lastTime), 0}, nil
	}
	var out []float32
	last := -1
	for i := range n {
		u := 1 - float64(i)/float64(n)
		if t := int(math.Round(betaQuantile(u, a, b) * lastTime)); t != last {
			out = append(out, m.Sigma(float32(t)))
			last = t
		}
	}
	return append(out, 0), nil
}

// betaQuantile inverts the Beta distribution by Newton steps from the middle.
func betaQuantile(u, a, b float64) float64 {
	x := 0.5
	for range 30 {
		f := betaCDF(x, a, b) - u
		if math.Abs(f) < 1e-10 {
			break
		}
		x -= f / math.Exp((a-1)*math.Log(x)+(b-1)*math.Log(1-x)-logBeta(a, b))
		if x <= 0 {
			x = 1e-10
		}
		if x >= 1 {
			x = 1 - 1e-10
		}
	}
	return x
}

func logBeta(a, b float64) float64 {
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	return la + lb - lab
}

func betaCDF(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x < (a+1)/(a+b+2):
		return incompleteBeta(x, a, b)
	}
	return 1 - incompleteBeta(1-x, b, a)
}

// incompleteBeta is the regularised incomplete beta function by Lentz's continued fraction.
func incompleteBeta(x, a, b float64) float64 {
	const tiny = 1e-30
	guard := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c := 1.0
	d := 1 / guard(1-(a+b)*x/(a+1))
	h := d
	for i := 1; i <= 200; i++ {
		m := float64(i)
		even := m * (b - m) * x / ((a - 1 + 2*m) * (a + 2*m))
		d = 1 / guard(1+even*d)
		c = guard(1 + even/c)
		h *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 1 + 2*m))
		d = 1 / guard(1+odd*d)
		c = guard(1 + odd/c)
		h *= d * c
		if math.Abs(d*c-1) < 3e-7 {
			break
		}
	}
	return math.Exp(a*math.Log(x)+b*math.Log(1-x)-logBeta(a, b)) / a * h
}

package sample

import (
	"fmt"
	"math"
	"slices"
)

// Timesteps is how many noise levels a checkpoint was trained on.
const Timesteps = 1000

// Prediction says what the network's output means.
type Prediction uint8

// The prediction types.
const (
	Eps      Prediction = iota // the noise: SD 1.x, SD 2.x base, SDXL
	V                          // velocity on the variance-preserving path: SD 2.x 768, v-prediction SDXL
	EDMV                       // velocity with EDM's continuous noise levels: CosXL
	Flow                       // rectified flow, times in thousandths: SD3, Wan, Qwen-Image, Z-Image
	FluxFlow                   // rectified flow, times in [0, 1]: FLUX
)

var predictionNames = [...]string{Eps: "eps", V: "v", EDMV: "edm_v", Flow: "flow", FluxFlow: "flux_flow"}

// String returns the command-line name.
func (p Prediction) String() string { return nameOf(predictionNames[:], int(p), "prediction") }

// ParsePrediction turns a command-line name into a Prediction.
func ParsePrediction(name string) (Prediction, error) {
	i, err := indexOf(predictionNames[:], name, "prediction")
	return Prediction(i), err
}

// ModelOptions are the facts about a checkpoint that its prediction type does not tell.
type ModelOptions struct {
	// Alphas is the checkpoint's alphas_cumprod tensor: Timesteps values in (0, 1]. Nil means the scaled-linear
	// schedule from 0.00085 to 0.012 that Stable Diffusion was trained with.
	Alphas []float32
	// Shift is the flow shift of Flow (usually 3) or FluxFlow (1 to 1.15); 0 means the default.
	Shift float32
	// SigmaMin and SigmaMax bound EDMV; 0 means 0.002 and 120.
	SigmaMin, SigmaMax float32
}

// Model relates noise levels (sigma) to training times (t) and network outputs to denoised latents.
type Model struct {
	pred      Prediction
	shift     float32
	min, max  float32
	sigmas    []float32 // Timesteps rising noise levels; nil for the flow types
	logSigmas []float32
}

// NewModel returns the model of a checkpoint. It fails on an unknown prediction and on unusable alphas.
func NewModel(p Prediction, o ModelOptions) (*Model, error) {
	m := &Model{pred: p, shift: o.Shift}
	switch p {
	case Eps, V, EDMV:
		if err := m.fillTable(o.Alphas); err != nil {
			return nil, err
		}
		m.min, m.max = m.sigmas[0], m.sigmas[Timesteps-1]
		if p == EDMV {
			m.min, m.max = orDefault(o.SigmaMin, 0.002), orDefault(o.SigmaMax, 120)
		}
	case Flow:
		m.shift = orDefault(o.Shift, 3)
	case FluxFlow:
		m.shift = orDefault(o.Shift, 1)
	default:
		return nil, fmt.Errorf("unknown prediction type %v", p)
	}
	if m.IsFlow() {
		m.min, m.max = m.Sigma(0), m.Sigma(Timesteps-1)
	}
	return m, nil
}

func orDefault(v, d float32) float32 {
	if v == 0 {
		return d
	}
	return v
}

func (m *Model) fillTable(alphas []float32) error {
	if alphas == nil {
		alphas = scaledLinearAlphas()
	}
	if len(alphas) != Timesteps {
		return fmt.Errorf("alphas_cumprod: expected %d values, found %d", Timesteps, len(alphas))
	}
	for i, a := range alphas {
		if !(a > 0 && a <= 1) {
			return fmt.Errorf("alphas_cumprod: value %d is %v, expected one in (0, 1]", i, a)
		}
		m.sigmas = append(m.sigmas, sqrtf((1-a)/a))
		m.logSigmas = append(m.logSigmas, logf(m.sigmas[i]))
	}
	return nil
}

// scaledLinearAlphas is the product of 1-beta, beta rising linearly in its square root.
func scaledLinearAlphas() []float32 {
	from, to := sqrtf(0.00085), sqrtf(0.0120)
	rise := to - from
	alphas := make([]float32, Timesteps)
	product := float32(1)
	for i := range alphas {
		root := from + float32(rise*(float32(i)/(Timesteps-1)))
		product *= 1 - float32(root*root)
		alphas[i] = product
	}
	return alphas
}

// Prediction is what the network's output means.
func (m *Model) Prediction() Prediction { return m.pred }

// IsFlow tells whether the noising path is the straight line of rectified flow.
func (m *Model) IsFlow() bool { return m.pred == Flow || m.pred == FluxFlow }

// SigmaMin is the lowest noise level schedulers aim at before zero.
func (m *Model) SigmaMin() float32 { return m.min }

// SigmaMax is the highest noise level.
func (m *Model) SigmaMax() float32 { return m.max }

// Table returns a copy of the trained noise levels, rising; nil for the flow types.
func (m *Model) Table() []float32 { return slices.Clone(m.sigmas) }

// Sigma is the noise level at training time t in [0, Timesteps-1]; between table entries its logarithm is linear.
func (m *Model) Sigma(t float32) float32 {
	switch m.pred {
	case EDMV:
		return expf(t * 4 / Timesteps)
	case Flow:
		return timeShift(m.shift, (t+1)/Timesteps)
	case FluxFlow:
		return fluxTimeShift(m.shift, (t+1)/Timesteps)
	}
	low, high := math.Floor(float64(t)), math.Ceil(float64(t))
	w := t - float32(low)
	return expf(float32((1-w)*m.logSigma(int(low))) + float32(w*m.logSigma(int(high))))
}

// logSigma reads the table. A time that rounding put a hair below zero finds, as it does in stable-diffusion.cpp,
// the value lying before the table: its largest noise level. The weight it gets is about 1e-4.
func (m *Model) logSigma(i int) float32 {
	if i < 0 {
		return m.sigmas[Timesteps-1]
	}
	return m.logSigmas[min(i, Timesteps-1)]
}

// Timestep is the time the network is told for a noise level; the inverse of Sigma, but for EDMV and the flow
// types the value their networks were trained to take.
func (m *Model) Timestep(sigma float32) float32 {
	switch m.pred {
	case EDMV:
		return 0.25 * logf(sigma)
	case Flow:
		return sigma * 1000
	case FluxFlow:
		return sigma
	}
	logSigma := logf(sigma)
	low := -1
	for _, l := range m.logSigmas {
		if logSigma-l >= 0 {
			low++
		}
	}
	low = min(max(low, 0), Timesteps-2)
	a, b := m.logSigmas[low], m.logSigmas[low+1]
	w := max(0, min(1, (a-logSigma)/(a-b)))
	return float32((1-w)*float32(low)) + float32(w*float32(low+1))
}

// Scalings are the preconditioning factors of Karras et al. 2022, section 5.
type Scalings struct {
	Skip float32 // weight of the noisy latent in the denoised one
	Out  float32 // weight of the network's output
	In   float32 // factor on the noisy latent before the network
}

// Scalings returns the factors at a noise level.
func (m *Model) Scalings(sigma float32) Scalings {
	if m.IsFlow() {
		return Scalings{Skip: 1, Out: -sigma, In: 1}
	}
	square := float32(sigma*sigma) + 1
	s := Scalings{Skip: 1, Out: -sigma, In: 1 / sqrtf(square)}
	if m.pred != Eps {
		s.Skip, s.Out = 1/square, -sigma/sqrtf(square)
	}
	return s
}

// Denoised writes out*c.Out + x*c.Skip into dst; the slices have one length and may be the same.
func (c Scalings) Denoised(dst, out, x []float32) {
	for i := range dst {
		dst[i] = float32(out[i]*c.Out) + float32(x[i]*c.Skip)
	}
}

// AddNoise writes the latent noised to level sigma into dst; the slices have one length and may be the same.
func (m *Model) AddNoise(dst, latent, noise []float32, sigma float32) {
	keep := float32(1)
	if m.IsFlow() {
		keep = 1 - sigma
	}
	for i := range dst {
		dst[i] = float32(latent[i]*keep) + float32(noise[i]*sigma)
	}
}

// Finish undoes the scaling of AddNoise on a latent left at noise level sigma, the last of the schedule.
func (m *Model) Finish(x []float32, sigma float32) {
	if !m.IsFlow() {
		return
	}
	f := 1 / (1 - sigma)
	for i := range x {
		x[i] *= f
	}
}

// timeShift is SD3's resolution shift (Esser et al. 2024, arXiv:2403.03206, equation 23).
func timeShift(alpha, t float32) float32 {
	if alpha == 1 {
		return t
	}
	return alpha * t / (1 + float32((alpha-1)*t))
}

// fluxTimeShift is FLUX's shift with an exponent of one.
func fluxTimeShift(mu, t float32) float32 {
	e := expf(mu)
	return e / (e + (1/t - 1))
}

func nameOf(names []string, i int, what string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}

func indexOf(names []string, name, what string) (int, error) {
	if i := slices.Index(names, name); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("unknown %s %q: expected one of %v", what, name, names)
}

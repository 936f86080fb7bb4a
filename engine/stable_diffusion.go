package engine

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/sdtool/sdtool/engine/clip"
	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/prompt"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/engine/text"
	"github.com/sdtool/sdtool/engine/unet"
	"github.com/sdtool/sdtool/engine/vae"
	"github.com/sdtool/sdtool/tensor"
)

// Module paths of the text towers: SDXL has two, the others the first.
const (
	firstTower  = "cond_stage_model.transformer.text_model"
	secondTower = "cond_stage_model.1.transformer.text_model"
)

// stableDiffusion is Stable Diffusion 1.x, 2.x, XL base and XL refiner.
type stableDiffusion struct {
	device  *graph.Device
	weights *graph.Weights
	options graph.Options
	about   Traits

	towers    []clip.Config
	towersFor map[int][]*clip.Tower // compiled, by clip skip
	tokenizer *text.Tokenizer
	pad       int32

	unet    unet.Config
	net     *unet.Net // compiled for:
	netSize [3]int64

	vae     vae.Config
	decoder *decoder

	prediction *sample.Prediction
	alphas     []float32
}

func isStableDiffusion(c *checkpoint) bool {
	return c.has(unet.Prefix+".input_blocks.0.0.weight") && c.has(unet.Prefix+".out.2.weight")
}

// sdxl reports whether the network takes sizes and a pooled text.
func (s *stableDiffusion) sdxl() bool { return s.unet.Vector > 0 }

func openStableDiffusion(c *checkpoint) (network, error) {
	s := &stableDiffusion{
		device: c.device, weights: c.weights, prediction: c.options.Prediction,
		options: graph.Options{FlashAttention: c.options.FlashAttention, Exact: c.exact()}, towersFor: make(map[int][]*clip.Tower),
	}
	var err error
	if s.unet, err = unet.Detect(c.shape, c.names); err != nil {
		return nil, err
	}
	for _, path := range []string{firstTower, secondTower} {
		if tower, ok := clip.Detect(c.shape, path); ok {
			s.towers = append(s.towers, tower)
		}
	}
	if len(s.towers) == 0 {
		return nil, fmt.Errorf("%w: tensor %q is missing", ErrNoTextEncoder, firstTower+".embeddings.token_embedding.weight")
	}
	if s.unet.In != s.unet.Out {
		return nil, fmt.Errorf("%w: the network takes %d channels and gives %d: inpainting and editing models need a picture to start from",
			ErrUnknownFamily, s.unet.In, s.unet.Out)
	}
	var pictures bool
	if s.vae, pictures = vae.Detect(c.shape); !pictures && !c.options.NoPictures {
		return nil, missingDecoder()
	}
	pictures = pictures && !c.options.NoPictures
	s.describe(pictures, c.options.SeparateVAE)
	if err := s.checkTowers(); err != nil {
		return nil, err
	}
	if s.tokenizer, err = text.CLIP(); err != nil {
		return nil, err
	}
	if s.alphas, err = readFloats(c, "alphas_cumprod", sample.Timesteps); err != nil {
		return nil, err
	}
	if err := s.findPrediction(c); err != nil {
		return nil, err
	}
	return s, s.askForWeights(pictures)
}

// describe fills in what differs between the versions.
func (s *stableDiffusion) describe(pictures, separateVAE bool) {
	t := &s.about
	*t = Traits{Multiple: 64, Channels: int(s.unet.Out), Pictures: pictures, Method: sample.EulerA, Guidance: 7, Factor: 8, ImageSide: 512}
	s.vae.Scale, s.pad = 0.18215, prompt.PadEnd
	if pictures {
		t.Factor = int(s.vae.Factor())
	}
	switch width := s.towers[0].Width; {
	case s.sdxl():
		t.Name, t.ClipSkip, t.Schedule, t.ImageSide = "SDXL", 2, sample.SDXL, 1024
		if len(s.towers) == 1 {
			t.Name = "SDXL refiner"
		}
		s.vae.Scale = 0.13025
		if !separateVAE {
			s.vae.InputScale = 1.0 / 32
		}
	case width >= 1024 || s.unet.Context != 768:
		t.Name, t.ClipSkip, t.Schedule, s.pad = "SD 2.x", 2, sample.SD1, prompt.PadZero
	default:
		t.Name, t.ClipSkip, t.Schedule = "SD 1.x", 1, sample.SD1
	}
}

// checkTowers sees to it that the text towers give what the network takes.
func (s *stableDiffusion) checkTowers() error {
	var width int64
	for _, t := range s.towers {
		width += t.Width
	}
	if width != s.unet.Context {
		return fmt.Errorf("%w that fits: the network takes text of width %d, the encoders give %d", ErrNoTextEncoder, s.unet.Context, width)
	}
	if !s.sdxl() {
		return nil
	}
	pooled := s.towers[len(s.towers)-1].Pooled
	if rest := s.unet.Vector - pooled; pooled == 0 || rest < 0 || rest%sizeEmbedding != 0 {
		return fmt.Errorf("%w that fits: the network takes a vector of %d, the pooled text is %d", ErrNoTextEncoder, s.unet.Vector, pooled)
	}
	return nil
}

// findPrediction looks for the marks that checkpoints carry.
func (s *stableDiffusion) findPrediction(c *checkpoint) error {
	pick := func(p sample.Prediction) { s.prediction = &p }
	switch {
	case s.prediction != nil:
	case c.has("edm_vpred.sigma_max"):
		pick(sample.EDMV)
	case c.has("v_pred"):
		pick(sample.V)
	case s.about.Name != "SD 2.x":
		pick(sample.Eps)
	}
	return nil
}

// askForWeights compiles everything once at the smallest size.
func (s *stableDiffusion) askForWeights(pictures bool) error {
	const side = 8
	towers, err := s.compileTowers(1)
	if err != nil {
		return err
	}
	closeTowers(towers)
	if !s.finalNorm() && !s.sdxl() {
		return fmt.Errorf("a text encoder without its last norm")
	}
	net, err := unet.Compile(s.device, s.weights, s.unet, s.options, side, side, s.towers[0].Tokens)
	if err != nil {
		return err
	}
	net.Close()
	s.decoder = newDecoder(s.device, s.weights, s.vae, s.options)
	if !pictures {
		return nil
	}
	return s.decoder.ask()
}

// finalNorm: SDXL takes hidden states as they are.
func (s *stableDiffusion) finalNorm() bool { return !s.sdxl() }

func (s *stableDiffusion) compileTowers(skip int) ([]*clip.Tower, error) {
	var out []*clip.Tower
	for _, c := range s.towers {
		t, err := clip.Compile(s.device, s.weights, c, s.options, clip.Skip{Layers: skip, FinalNorm: s.finalNorm()})
		if err != nil {
			closeTowers(out)
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func closeTowers(towers []*clip.Tower) {
	for _, t := range towers {
		t.Close()
	}
}

func (s *stableDiffusion) traits() Traits { return s.about }

func (s *stableDiffusion) close() {
	for _, towers := range s.towersFor {
		closeTowers(towers)
	}
	if s.net != nil {
		s.net.Close()
	}
	if s.decoder != nil {
		s.decoder.close()
	}
}

// denoiser tells SD 2.x networks that predict velocity from those that predict
// noise, which look alike: fed a constant at the last time, the former answer
// with a mean far below it.
func (s *stableDiffusion) denoiser(ctx context.Context) (*sample.Model, error) {
	p := s.prediction
	if p == nil {
		size := latentSize{s.unet.Out, 8, 8}
		x := constant(size.elements(), 0.5)
		out, err := s.predict(ctx, x, size, sample.Timesteps-1, &condition{text: constant(2*s.unet.Context, 0.5), tokens: 2})
		if err != nil {
			return nil, fmt.Errorf("find out what the network predicts: %w", err)
		}
		var sum float64
		for i, v := range out {
			sum += float64(v - x[i])
		}
		kind := sample.Eps
		if sum/float64(len(out)) < -1 {
			kind = sample.V
		}
		p = &kind
	}
	return sample.NewModel(*p, sample.ModelOptions{Alphas: s.alphas})
}

func constant(n int64, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

func (s *stableDiffusion) predict(ctx context.Context, x []float32, size latentSize, time float32, c *condition) ([]float32, error) {
	want := [3]int64{size.height, size.width, c.tokens}
	if s.net == nil || s.netSize != want {
		if s.net != nil {
			s.net.Close()
			s.net = nil
		}
		net, err := unet.Compile(s.device, s.weights, s.unet, s.options, size.height, size.width, c.tokens)
		if err != nil {
			return nil, err
		}
		s.net, s.netSize = net, want
	}
	vector := c.vector
	if vector == nil && s.sdxl() {
		vector = make([]float32, s.unet.Vector)
	}
	return s.net.Run(ctx, x, time, c.text, vector)
}

func (s *stableDiffusion) decode(ctx context.Context, x []float32, size latentSize) ([]float32, error) {
	return s.decoder.decode(ctx, x, size)
}

// encode runs the text towers on each chunk of the prompt.
func (s *stableDiffusion) encode(ctx context.Context, r textRequest) (*condition, error) {
	skip := r.clipSkip
	if skip == 0 {
		skip = s.about.ClipSkip
	}
	towers := s.towersFor[skip]
	if towers == nil {
		var err error
		if towers, err = s.compileTowers(skip); err != nil {
			return nil, err
		}
		s.towersFor[skip] = towers
	}
	out := &condition{}
	var pooled []float32
	for i, chunk := range prompt.Tokenize(s.tokenizer, r.text, s.pad).Chunks() {
		hidden, err := s.encodeChunk(ctx, towers, chunk)
		if err != nil {
			return nil, err
		}
		if s.sdxl() && i == 0 {
			ids, end := chunk.ForPooled()
			if pooled, err = towers[len(towers)-1].Pool(ctx, ids, end); err != nil {
				return nil, err
			}
		}
		prompt.ApplyWeights(hidden, chunk.Weights)
		out.text = append(out.text, hidden...)
		out.tokens += int64(len(chunk.IDs))
	}
	if s.sdxl() {
		// An empty negative prompt counts as no text at all, but for CosXL.
		if r.negative && r.text == "" && (s.prediction == nil || *s.prediction != sample.EDMV) {
			clear(out.text)
		}
		out.vector = s.vector(pooled, r)
	}
	return out, nil
}

// encodeChunk returns the hidden states of all towers side by side.
func (s *stableDiffusion) encodeChunk(ctx context.Context, towers []*clip.Tower, chunk prompt.Chunk) ([]float32, error) {
	var states [][]float32
	for i, t := range towers {
		ids := chunk.IDs
		if s.sdxl() && i == len(towers)-1 {
			ids, _ = chunk.ForPooled()
		}
		h, err := t.Encode(ctx, ids)
		if err != nil {
			return nil, err
		}
		states = append(states, h)
	}
	if len(states) == 1 {
		return states[0], nil
	}
	a, b := int(towers[0].Width), int(towers[1].Width)
	joined := make([]float32, 0, len(states[0])+len(states[1]))
	for i := range len(chunk.IDs) {
		joined = append(joined, states[0][i*a:(i+1)*a]...)
		joined = append(joined, states[1][i*b:(i+1)*b]...)
	}
	return joined, nil
}

// sizeEmbedding is the width of the embedding of each number in the vector.
const sizeEmbedding = 256

// vector is the pooled text and embeddings of: original height and width, crop,
// and target height and width for the base, an aesthetic score for the refiner.
func (s *stableDiffusion) vector(pooled []float32, r textRequest) []float32 {
	h, w := float32(r.height), float32(r.width)
	numbers := []float32{h, w, 0, 0, h, w}
	if len(s.towers) == 1 {
		score := float32(6)
		if r.negative {
			score = 2.5
		}
		numbers = []float32{h, w, 0, 0, score}
	}
	out := make([]float32, s.unet.Vector)
	n := copy(out, pooled)
	for i := 0; i < len(numbers) && n+sizeEmbedding <= len(out); i++ {
		embedNumber(out[n:n+sizeEmbedding], numbers[i])
		n += sizeEmbedding
	}
	return out
}

// embedNumber writes cosines of x at frequencies falling from 1 to 1/10000, then sines.
func embedNumber(dst []float32, x float32) {
	half := len(dst) / 2
	for j := range half {
		freq := float32(math.Exp(-math.Log(10000) * float64(j) / float64(half)))
		angle := float64(x * freq)
		dst[j], dst[j+half] = float32(math.Cos(angle)), float32(math.Sin(angle))
	}
}

// readFloats reads a small f32 tensor, nil if there is none of that length.
func readFloats(c *checkpoint, name string, n int64) ([]float32, error) {
	t, ok := c.byName[name]
	if elems, err := t.Elements(); !ok || err != nil || elems != n {
		return nil, nil
	}
	raw := make([]byte, t.Source.Size())
	if _, err := io.ReadFull(io.NewSectionReader(t.Source, 0, int64(len(raw))), raw); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	out := make([]float32, n)
	if d := t.DType; d != tensor.F32 && d != tensor.F16 && d != tensor.BF16 {
		return nil, nil
	}
	return out, c.device.Lib.ToFloat(t.DType, raw, out)
}

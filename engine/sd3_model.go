package engine

import (
	"context"
	"fmt"

	"github.com/sdtool/sdtool/engine/clip"
	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/mmdit"
	"github.com/sdtool/sdtool/engine/prompt"
	"github.com/sdtool/sdtool/engine/sample"
)

// sd3Width is the width of CLIP-L, which counts where the encoder is absent.
const sd3Width = 768

// sd3Model is Stable Diffusion 3, 3.5 medium and 3.5 large: CLIP-L and CLIP-G side by
// side, and T5 after them, are the text; both pooled texts are the vector.
type sd3Model struct {
	device  *graph.Device
	weights *graph.Weights
	options graph.Options
	about   Traits
	shift   float32

	text    *encoders
	config  mmdit.Config
	net     *mmdit.Net // compiled for:
	netSize [3]int64
	decoder *decoder
}

func isSD3(c *checkpoint) bool {
	_, ok := mmdit.Detect(c.shape)
	return ok
}

func openSD3(c *checkpoint) (network, error) {
	s := &sd3Model{device: c.device, weights: c.weights, options: graph.Options{FlashAttention: c.options.FlashAttention}, shift: 3}
	s.config, _ = mmdit.Detect(c.shape)
	if s.config.Channels != s.config.Out {
		return nil, fmt.Errorf("%w: the network takes %d channels and gives %d: inpainting and control models need a picture to start from",
			ErrUnknownFamily, s.config.Channels, s.config.Out)
	}
	pictures, v, err := findDecoder(c, s.config.Channels, 1.5305, 0.0609)
	if err != nil {
		return nil, err
	}
	name := "SD 3"
	switch {
	case c.has(mmdit.Prefix + ".joint_blocks.0.x_block.attn2.qkv.weight"):
		name = "SD 3.5 medium"
	case c.has(mmdit.Prefix + ".joint_blocks.0.x_block.attn.ln_q.weight"):
		name = "SD 3.5 large"
	}
	s.about = transformerTraits(name, s.config.Channels, pictures)
	if f := c.options.FlowShift; f > 0 {
		s.shift = f
	}
	if s.text, err = openEncoders(c, s.options, clip.Skip{State: true}, clip.Skip{}); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	s.decoder = newDecoder(c.device, c.weights, v, s.options)
	return s, s.ask(pictures)
}

// check sees to it that the encoders give what the network takes.
func (s *sd3Model) check() error {
	l, g := s.text.l, s.text.g
	if l != nil && g != nil {
		if err := fits("a pooled text", l.config.Width+g.config.Pooled, s.config.Vector); err != nil {
			return err
		}
	}
	if t := s.text.t5; t != nil {
		if err := fits("a text", t.Width, s.config.Context); err != nil {
			return err
		}
	}
	if width := s.clipWidth(); width > s.config.Context {
		return fits("CLIP's texts", width, s.config.Context)
	}
	return nil
}

// lWidth is the width of CLIP-L's states, also if it is absent.
func (s *sd3Model) lWidth() int64 {
	switch {
	case s.text.l != nil:
		return s.text.l.config.Width
	case s.text.g != nil:
		return max(s.config.Vector-s.text.g.config.Pooled, 0)
	}
	return min(sd3Width, s.config.Vector)
}

// clipWidth is that of both CLIP texts side by side.
func (s *sd3Model) clipWidth() int64 {
	if s.text.g != nil {
		return s.lWidth() + s.text.g.config.Width
	}
	return s.lWidth()
}

// ask compiles everything once at the smallest size.
func (s *sd3Model) ask(pictures bool) error {
	if err := s.text.ask(prompt.ChunkLen); err != nil {
		return err
	}
	net, err := mmdit.Compile(s.device, s.weights, s.config, s.options, 2, 2, 2*prompt.ChunkLen)
	if err != nil {
		return err
	}
	net.Close()
	if pictures {
		return s.decoder.ask()
	}
	return nil
}

func (s *sd3Model) traits() Traits { return s.about }

func (s *sd3Model) close() {
	s.text.close()
	if s.net != nil {
		s.net.Close()
	}
	s.decoder.close()
}

func (s *sd3Model) denoiser(context.Context) (*sample.Model, error) {
	return sample.NewModel(sample.Flow, sample.ModelOptions{Shift: s.shift})
}

func (s *sd3Model) encode(ctx context.Context, r textRequest) (*condition, error) {
	layers := r.clipSkip
	if layers == 0 {
		layers = s.about.ClipSkip
	}
	l, err := s.text.clip(ctx, s.text.l, r.text, layers)
	if err != nil {
		return nil, err
	}
	g, err := s.text.clip(ctx, s.text.g, r.text, layers)
	if err != nil {
		return nil, err
	}
	long, err := s.text.t5Chunks(ctx, r.text, prompt.ChunkLen)
	if err != nil {
		return nil, err
	}
	out := &condition{vector: make([]float32, s.config.Vector)}
	copy(out.vector, l.pooled)
	copy(out.vector[s.lWidth():], g.pooled)
	for i := range max(len(l.chunks), len(g.chunks), len(long), 1) {
		rows := make([]float32, 2*prompt.ChunkLen*s.config.Context)
		s.place(rows, at(l.chunks, i), 0)
		s.place(rows, at(g.chunks, i), s.lWidth())
		copy(rows[prompt.ChunkLen*s.config.Context:], at(long, i))
		out.text = append(out.text, rows...)
		out.tokens += 2 * prompt.ChunkLen
	}
	return out, nil
}

// place puts the states of one chunk into rows of the text's width, from a column on.
func (s *sd3Model) place(rows, states []float32, column int64) {
	width := int64(len(states) / prompt.ChunkLen)
	for i := range int64(prompt.ChunkLen) {
		copy(rows[i*s.config.Context+column:], states[i*width:(i+1)*width])
	}
}

// at is a chunk, or nothing where a prompt has fewer for one encoder than for another.
func at(chunks [][]float32, i int) []float32 {
	if i < len(chunks) {
		return chunks[i]
	}
	return nil
}

func (s *sd3Model) predict(ctx context.Context, x []float32, size latentSize, time float32, c *condition) ([]float32, error) {
	want := [3]int64{size.height, size.width, c.tokens}
	if s.net == nil || s.netSize != want {
		if s.net != nil {
			s.net.Close()
			s.net = nil
		}
		net, err := mmdit.Compile(s.device, s.weights, s.config, s.options, size.height, size.width, c.tokens)
		if err != nil {
			return nil, err
		}
		s.net, s.netSize = net, want
	}
	return s.net.Run(ctx, x, time, c.text, c.vector)
}

func (s *sd3Model) decode(ctx context.Context, x []float32, size latentSize) ([]float32, error) {
	return s.decoder.decode(ctx, x, size)
}

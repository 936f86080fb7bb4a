package engine

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/sdtool/sdtool/engine/clip"
	"github.com/sdtool/sdtool/engine/graph"
	"github.com/sdtool/sdtool/engine/prompt"
	"github.com/sdtool/sdtool/engine/t5"
	"github.com/sdtool/sdtool/engine/text"
)

// Module paths of the encoders that transformers take.
const (
	clipLPath = "text_encoders.clip_l.transformer.text_model"
	clipGPath = "text_encoders.clip_g.transformer.text_model"
	t5Path    = "text_encoders.t5xxl.transformer"
)

// encoder is a CLIP tower as transformers use it; a nil one is absent.
type encoder struct {
	config clip.Config
	pad    int32
	skip   clip.Skip // but for the layers
	towers map[int]*clip.Tower
}

// encoders are those of one model, any of which may be absent: what it would have
// given is then zeros, as with stable-diffusion.cpp.
type encoders struct {
	device  *graph.Device
	weights *graph.Weights
	options graph.Options
	words   *text.Tokenizer

	l, g   *encoder
	t5     *t5.Config
	pieces *text.Unigram
	t5For  map[int]*t5.Encoder // by length
}

// openEncoders detects the encoders; lSkip and gSkip say what the towers are asked
// for. Without any of them the error wraps ErrNoTextEncoder, with T5 and without its
// tokenizer text.ErrNoTokenizer.
func openEncoders(c *checkpoint, o graph.Options, lSkip, gSkip clip.Skip) (*encoders, error) {
	e := &encoders{device: c.device, weights: c.weights, options: o, pieces: c.options.T5Tokenizer, t5For: make(map[int]*t5.Encoder)}
	var err error
	if e.words, err = text.CLIP(); err != nil {
		return nil, err
	}
	if config, ok := clip.Detect(c.shape, clipLPath); ok {
		e.l = &encoder{config: config, pad: prompt.PadEnd, skip: lSkip, towers: make(map[int]*clip.Tower)}
	}
	if config, ok := clip.Detect(c.shape, clipGPath); ok {
		e.g = &encoder{config: config, pad: prompt.PadZero, skip: gSkip, towers: make(map[int]*clip.Tower)}
	}
	if config, ok := t5.Detect(c.shape, t5Path); ok {
		e.t5 = &config
	}
	switch {
	case e.l == nil && e.g == nil && e.t5 == nil:
		return nil, fmt.Errorf("%w: no tensors below %s, %s or %s", ErrNoTextEncoder, clipLPath, clipGPath, t5Path)
	case e.t5 != nil && e.pieces == nil:
		return nil, fmt.Errorf("%w for the T5 encoder: want its tokenizer.json or spiece.model, a diffusers folder that holds one, or an encoder in a GGUF file that carries the tokenizer.ggml keys", text.ErrNoTokenizer)
	}
	return e, nil
}

// ask compiles everything once, so that all weights are asked for.
func (e *encoders) ask(t5Length int) error {
	for _, x := range []*encoder{e.l, e.g} {
		if x == nil {
			continue
		}
		skip := x.skip
		skip.Layers = 1
		t, err := clip.Compile(e.device, e.weights, x.config, e.options, skip)
		if err != nil {
			return err
		}
		t.Close()
	}
	if e.t5 == nil {
		return nil
	}
	enc, err := t5.Compile(e.device, e.weights, *e.t5, e.options, int64(t5Length))
	if err != nil {
		return err
	}
	enc.Close()
	return nil
}

func (e *encoders) close() {
	for _, x := range []*encoder{e.l, e.g} {
		if x == nil {
			continue
		}
		for _, t := range x.towers {
			t.Close()
		}
	}
	for _, enc := range e.t5For {
		enc.Close()
	}
}

// tower returns a tower compiled for a clip skip.
func (e *encoders) tower(x *encoder, layers int) (*clip.Tower, error) {
	if t := x.towers[layers]; t != nil {
		return t, nil
	}
	skip := x.skip
	skip.Layers = layers
	t, err := clip.Compile(e.device, e.weights, x.config, e.options, skip)
	if err == nil {
		x.towers[layers] = t
	}
	return t, err
}

// clipText is what a tower makes of a prompt.
type clipText struct {
	chunks [][]float32 // hidden states [77, width] of each chunk; nil for towers asked only for pooled
	pooled []float32   // of the first chunk
}

// clip runs a tower on a prompt; an absent one gives nothing.
func (e *encoders) clip(ctx context.Context, x *encoder, s string, layers int) (clipText, error) {
	var out clipText
	if x == nil {
		return out, nil
	}
	t, err := e.tower(x, layers)
	if err != nil {
		return out, err
	}
	for i, chunk := range prompt.Tokenize(e.words, s, x.pad).Chunks() {
		if !x.skip.PooledOnly {
			hidden, err := t.Encode(ctx, chunk.IDs)
			if err != nil {
				return out, err
			}
			prompt.ApplyWeights(hidden, chunk.Weights)
			out.chunks = append(out.chunks, hidden)
		}
		if i > 0 {
			continue
		}
		end := max(slices.Index(chunk.IDs, prompt.EndToken), 0)
		if out.pooled, err = t.Pool(ctx, chunk.IDs, end); err != nil {
			return out, err
		}
	}
	return out, nil
}

// t5Chunks returns the states [length, width] of each chunk of a prompt; without an
// encoder there are none.
func (e *encoders) t5Chunks(ctx context.Context, s string, length int) ([][]float32, error) {
	if e.t5 == nil {
		return nil, nil
	}
	enc := e.t5For[length]
	if enc == nil {
		var err error
		if enc, err = t5.Compile(e.device, e.weights, *e.t5, e.options, int64(length)); err != nil {
			return nil, err
		}
		e.t5For[length] = enc
	}
	var out [][]float32
	for _, chunk := range e.t5Tokens(s, length) {
		hidden, err := enc.Encode(ctx, chunk.IDs, nil)
		if err != nil {
			return nil, err
		}
		prompt.ApplyWeights(hidden, chunk.Weights)
		out = append(out, hidden)
	}
	return out, nil
}

// t5Tokens cuts a prompt for T5.
func (e *encoders) t5Tokens(s string, length int) []prompt.Chunk {
	return prompt.TokenizeT5(e.pieces, s, length, e.pieces.EOS, e.pieces.Pad)
}

// t5Mask is, for each token of each chunk, zero if it is part of the prompt or one of
// the first few of the padding, and minus infinity if not.
func (e *encoders) t5Mask(s string, length, padding int) []float32 {
	var mask []float32
	for _, chunk := range e.t5Tokens(s, length) {
		used := len(chunk.IDs)
		for used > 0 && chunk.IDs[used-1] == e.pieces.Pad {
			used--
		}
		for i := range chunk.IDs {
			hidden := float32(0)
			if i >= used && padding <= 0 {
				hidden = float32(math.Inf(-1))
			} else if i >= used {
				padding--
			}
			mask = append(mask, hidden)
		}
	}
	return mask
}

// fits reports an encoder that does not give what a network takes.
func fits(what string, has, want int64) error {
	if has == want {
		return nil
	}
	return fmt.Errorf("%w that fits: the network takes %s of width %d, the encoders give %d", ErrNoTextEncoder, what, want, has)
}

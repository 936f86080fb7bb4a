package prompt

import (
	"math"
	"slices"
)

// Sizes of what a CLIP text encoder takes at a time: a start token, BodyLen tokens of prompt, an end token.
const (
	ChunkLen = 77
	BodyLen  = ChunkLen - 2
)

// Token numbers every CLIP encoder shares, and the two paddings in use.
const (
	StartToken = 49406
	EndToken   = 49407

	PadEnd  = EndToken // CLIP-L of SD 1.x and SDXL
	PadZero = 0        // OpenCLIP of SD 2.x
)

// Encoder turns plain text into tokens; *text.Tokenizer is one.
type Encoder interface {
	Encode(text string) []int32
}

// Tokens is a prompt laid out in whole chunks.
type Tokens struct {
	IDs     []int32   // a multiple of ChunkLen
	Weights []float32 // one per token; 1 for start, end and padding
}

// Chunk is what one run of the text encoder takes: ChunkLen tokens and weights.
type Chunk = Tokens

// Tokenize parses a prompt and lays it out: each chunk is a start token, up to BodyLen tokens, an end token and
// padding. An empty prompt is one chunk.
func Tokenize(enc Encoder, prompt string, pad int32) Tokens {
	var ids []int32
	var weights []float32
	add := func(id int32, w float32) {
		ids = append(ids, id)
		weights = append(weights, w)
	}
	for _, p := range ParseAttention(prompt) {
		if p.IsBreak() {
			for len(ids)%BodyLen != 0 {
				add(EndToken, 1)
			}
			continue
		}
		for _, id := range enc.Encode(p.Text) {
			add(id, p.Weight)
		}
	}
	return layOut(ids, weights, pad)
}

// TokenizeT5 parses a prompt and lays it out for a T5 encoder: chunks of the given
// length, each up to length-1 tokens, an end token and padding. BREAK is not known
// there and is left out.
func TokenizeT5(enc Encoder, prompt string, length int, end, pad int32) []Chunk {
	body := length - 1
	var all Tokens
	for _, p := range ParseAttention(prompt) {
		if p.IsBreak() {
			continue
		}
		for _, id := range enc.Encode(p.Text) {
			all.IDs, all.Weights = append(all.IDs, id), append(all.Weights, p.Weight)
		}
	}
	var chunks []Chunk
	for start := 0; start == 0 || start < len(all.IDs); start += body {
		stop := min(start+body, len(all.IDs))
		c := Chunk{IDs: append(slices.Clone(all.IDs[start:stop]), end), Weights: append(slices.Clone(all.Weights[start:stop]), 1)}
		for len(c.IDs) < length {
			c.IDs, c.Weights = append(c.IDs, pad), append(c.Weights, 1)
		}
		chunks = append(chunks, c)
	}
	return chunks
}

func layOut(ids []int32, weights []float32, pad int32) Tokens {
	var t Tokens
	add := func(id int32, w float32) {
		t.IDs = append(t.IDs, id)
		t.Weights = append(t.Weights, w)
	}
	for start := 0; start == 0 || start < len(ids); start += BodyLen {
		end := min(start+BodyLen, len(ids))
		add(StartToken, 1)
		for i := start; i < end; i++ {
			add(ids[i], weights[i])
		}
		add(EndToken, 1)
		for len(t.IDs)%ChunkLen != 0 {
			add(pad, 1)
		}
	}
	return t
}

// Chunks cuts the layout into chunks; they share its memory.
func (t Tokens) Chunks() []Chunk {
	var out []Chunk
	for i := 0; i+ChunkLen <= len(t.IDs); i += ChunkLen {
		out = append(out, Chunk{IDs: t.IDs[i : i+ChunkLen], Weights: t.Weights[i : i+ChunkLen]})
	}
	return out
}

// ForPooled returns a chunk's tokens as SDXL's second encoder takes them, everything after the first end token set to
// zero, and the position of that end token, whose hidden state becomes the pooled output.
func (t Tokens) ForPooled() (ids []int32, end int) {
	ids = append(ids, t.IDs...)
	for end = 0; end < len(ids) && ids[end] != EndToken; end++ {
	}
	for i := end + 1; i < len(ids); i++ {
		ids[i] = 0
	}
	return ids, min(end, max(len(ids)-1, 0))
}

// ApplyWeights scales each token's hidden state (hidden is tokens × width, token by token) by its weight and then all
// of them by one factor that restores the mean. Weights of one leave hidden untouched.
func ApplyWeights(hidden []float32, weights []float32) {
	plain := true
	for _, w := range weights {
		plain = plain && w == 1
	}
	if plain || len(hidden) == 0 {
		return
	}
	width := len(hidden) / len(weights)
	before := mean(hidden)
	for i, w := range weights {
		for j := range hidden[i*width : (i+1)*width] {
			hidden[i*width+j] *= w
		}
	}
	after := mean(hidden)
	if !finite(before) || !finite(after) || after == 0 {
		return
	}
	f := before / after
	for i := range hidden {
		hidden[i] *= f
	}
}

func mean(v []float32) float32 {
	var sum float64
	for _, x := range v {
		sum += float64(x)
	}
	return float32(sum / float64(len(v)))
}

func finite(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }

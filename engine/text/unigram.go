package text

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// ErrNoTokenizer is wrapped when no unigram tokenizer is found where one was looked
// for.
var ErrNoTokenizer = errors.New("no tokenizer")

// Kind is what a piece of a vocabulary is; the numbers are SentencePiece's.
type Kind uint8

// Kinds of pieces.
const (
	Normal      Kind = 1
	Unknown     Kind = 2
	Control     Kind = 3 // never found in text
	UserDefined Kind = 4 // found before anything else
	Unused      Kind = 5
	Byte        Kind = 6 // <0x00> to <0xFF>, for what no piece covers
)

// Piece is one entry of a vocabulary.
type Piece struct {
	Text  string
	Score float32 // logarithm of its probability
	Kind  Kind
}

// spaceMark is what pieces have for a space.
const spaceMark = "\u2581"

// unknownPenalty is how much worse an unknown character is than the rarest piece.
const unknownPenalty = 10

// Unigram is the tokenizer of T5 and its kin: of all ways to cut a text into pieces
// it takes the most probable (Kudo 2018, arXiv:1804.10959). Made by OpenUnigram and
// UnigramFromGGUF; it is not changed by use.
type Unigram struct {
	EOS, Pad, Unk int32

	pieces     []Piece
	ids        map[string]int32 // of pieces that are found in text
	longest    int              // of those, in bytes
	bytes      [256]int32       // ids of byte pieces; used if byteFallback
	fallback   bool
	unkScore   float32
	maxScore   float32
	normal     normalizer
	added      map[string]int32 // tokens that are cut out of the text before anything else
	addedFirst string           // first bytes of those, to look for them fast
}

// VocabSize is the number of pieces.
func (u *Unigram) VocabSize() int { return len(u.pieces) }

// newUnigram checks the vocabulary and indexes it.
func newUnigram(pieces []Piece, n normalizer) (*Unigram, error) {
	u := &Unigram{EOS: -1, Pad: -1, Unk: -1, pieces: pieces, ids: make(map[string]int32, len(pieces)), normal: n, maxScore: -math.MaxFloat32}
	low := float32(math.MaxFloat32)
	found := 0
	for i, p := range pieces {
		id := int32(i)
		switch p.Kind {
		case Normal, UserDefined, Unused:
			if p.Text == "" || p.Kind == Unused {
				continue
			}
			if _, twice := u.ids[p.Text]; twice {
				return nil, fmt.Errorf("piece %d %q is there twice", i, p.Text)
			}
			if p.Score != p.Score {
				return nil, fmt.Errorf("piece %d %q has no score", i, p.Text)
			}
			u.ids[p.Text] = id
			u.longest = max(u.longest, len(p.Text))
			if p.Kind == Normal {
				low, u.maxScore = min(low, p.Score), max(u.maxScore, p.Score)
			}
		case Byte:
			var b int
			if _, err := fmt.Sscanf(p.Text, "<0x%02X>", &b); err != nil || b < 0 || b > 255 {
				return nil, fmt.Errorf("piece %d %q is no byte", i, p.Text)
			}
			u.bytes[b] = id
			found++
		case Unknown:
			u.Unk = id
		case Control:
		default:
			return nil, fmt.Errorf("piece %d %q is of unknown kind %d", i, p.Text, p.Kind)
		}
		switch p.Text {
		case "</s>":
			u.EOS = id
		case "<pad>":
			u.Pad = id
		}
	}
	u.fallback = found == 256
	u.unkScore = low - unknownPenalty
	if len(u.ids) == 0 {
		return nil, errors.New("the vocabulary has no pieces")
	}
	u.normal.protected = u.userDefined()
	return u, nil
}

// finish checks what every reader must have set.
func (u *Unigram) finish() error {
	if u.Pad < 0 {
		u.Pad = 0
	}
	for what, id := range map[string]int32{"unknown": u.Unk, "end": u.EOS, "padding": u.Pad} {
		if id < 0 || int(id) >= len(u.pieces) {
			return fmt.Errorf("the %s token is %d, the vocabulary has %d pieces", what, id, len(u.pieces))
		}
	}
	return nil
}

// userDefined lists the pieces that normalisation must not touch.
func (u *Unigram) userDefined() []string {
	var list []string
	for _, p := range u.pieces {
		if p.Kind == UserDefined && p.Text != "" {
			list = append(list, p.Text)
		}
	}
	return list
}

// addToken makes a text a token wherever it stands.
func (u *Unigram) addToken(s string, id int32) {
	if s == "" {
		return
	}
	if u.added == nil {
		u.added = make(map[string]int32)
	}
	u.added[s] = id
	if strings.IndexByte(u.addedFirst, s[0]) < 0 {
		u.addedFirst += s[:1]
	}
}

// Encode returns the tokens of a text, without an end token.
func (u *Unigram) Encode(s string) []int32 {
	var ids []int32
	for s != "" {
		at, token := u.nextAdded(s)
		if at > 0 {
			ids = u.encodePlain(ids, s[:at])
		}
		if token == "" {
			break
		}
		ids = append(ids, u.added[token])
		s = s[at+len(token):]
	}
	return ids
}

// nextAdded finds the first added token, of several the longest; without one it
// returns the text's length.
func (u *Unigram) nextAdded(s string) (at int, token string) {
	for at = range len(s) {
		if strings.IndexByte(u.addedFirst, s[at]) < 0 {
			continue
		}
		for t := range u.added {
			if len(t) > len(token) && strings.HasPrefix(s[at:], t) {
				token = t
			}
		}
		if token != "" {
			return at, token
		}
	}
	return len(s), ""
}

// encodePlain cuts text without added tokens.
func (u *Unigram) encodePlain(ids []int32, s string) []int32 {
	for _, word := range u.normal.words(s) {
		ids = u.viterbi(ids, word)
	}
	return ids
}

// viterbi appends the most probable cut of a normalised text. Sums are float32, as
// SentencePiece's are.
func (u *Unigram) viterbi(ids []int32, s string) []int32 {
	if s == "" {
		return ids
	}
	type node struct {
		score float32
		from  int // where the piece that ends here starts; -1 if none does
		id    int32
	}
	best := make([]node, len(s)+1)
	for i := 1; i < len(best); i++ {
		best[i].from = -1
	}
	for at := 0; at < len(s); {
		_, first := utf8.DecodeRuneInString(s[at:])
		offer := func(end int, score float32, id int32) {
			if n := &best[end]; n.from < 0 || score > n.score {
				*n = node{score, at, id}
			}
		}
		single := false
		for end := at + 1; end <= min(len(s), at+u.longest); end++ {
			id, ok := u.ids[s[at:end]]
			if !ok {
				continue
			}
			score := u.pieces[id].Score
			if u.pieces[id].Kind == UserDefined {
				score = float32(float32(end-at)*u.maxScore) - 0.1
			}
			offer(end, best[at].score+score, id)
			single = single || end-at == first
		}
		if !single {
			offer(at+first, best[at].score+u.unkScore, u.Unk)
		}
		at += first
	}
	var cut []int // ends of pieces, last first
	for end := len(s); end > 0; end = best[end].from {
		cut = append(cut, end)
	}
	unknown := false
	for i := len(cut) - 1; i >= 0; i-- {
		n := best[cut[i]]
		switch {
		case n.id != u.Unk:
			ids = append(ids, n.id)
		case u.fallback:
			for _, b := range []byte(s[n.from:cut[i]]) {
				ids = append(ids, u.bytes[b])
			}
		case !unknown: // neighbouring unknowns are one
			ids = append(ids, u.Unk)
		}
		unknown = n.id == u.Unk
	}
	return ids
}

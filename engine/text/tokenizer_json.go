package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ErrNotUnigram is wrapped when a tokenizer is of another kind, as CLIP's is.
var ErrNotUnigram = errors.New("not a unigram tokenizer")

// tokenizerJSON is what is read of Hugging Face's tokenizer.json.
type tokenizerJSON struct {
	Added []struct {
		ID      int32  `json:"id"`
		Content string `json:"content"`
	} `json:"added_tokens"`
	Normalizer   *step `json:"normalizer"`
	PreTokenizer *step `json:"pre_tokenizer"`
	Model        struct {
		Type         string            `json:"type"`
		UnkID        *int32            `json:"unk_id"`
		ByteFallback bool              `json:"byte_fallback"`
		Vocab        []json.RawMessage `json:"vocab"`
	} `json:"model"`
}

// step is a normalizer or a pre-tokenizer.
type step struct {
	Type          string  `json:"type"`
	Normalizers   []*step `json:"normalizers"`
	PreTokenizers []*step `json:"pretokenizers"`
	CharsMap      []byte  `json:"precompiled_charsmap"` // base64
	Content       string  `json:"content"`
	Pattern       struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	StripLeft  bool    `json:"strip_left"`
	StripRight bool    `json:"strip_right"`
	Replace    string  `json:"replacement"`
	AddPrefix  *bool   `json:"add_prefix_space"`
	Prepend    *string `json:"prepend_scheme"`
}

// parseTokenizerJSON reads a tokenizer.json whose model is Unigram.
func parseTokenizerJSON(raw []byte) (*Unigram, error) {
	// The kind first: vocabularies of others have another form.
	var kind struct {
		Model struct {
			Type  string          `json:"type"`
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, err
	}
	if t := kind.Model.Type; t != "Unigram" && (t != "" || !strings.HasPrefix(string(kind.Model.Vocab), "[")) {
		return nil, fmt.Errorf("%w: its model is %q", ErrNotUnigram, t)
	}
	var j tokenizerJSON
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, err
	}
	var n normalizer
	if err := n.addNormalizer(j.Normalizer); err != nil {
		return nil, err
	}
	if err := n.addPreTokenizer(j.PreTokenizer); err != nil {
		return nil, err
	}
	if len(j.Model.Vocab) > maxPieces {
		return nil, fmt.Errorf("%d pieces, want at most %d", len(j.Model.Vocab), maxPieces)
	}
	special := make(map[string]bool)
	for _, a := range j.Added {
		special[a.Content] = true
	}
	pieces := make([]Piece, len(j.Model.Vocab))
	for i, entry := range j.Model.Vocab {
		p := &pieces[i]
		if err := json.Unmarshal(entry, &[]any{&p.Text, &p.Score}); err != nil {
			return nil, fmt.Errorf("piece %d: want [text, score]: %w", i, err)
		}
		p.Kind = Normal
		switch {
		case j.Model.UnkID != nil && int32(i) == *j.Model.UnkID:
			p.Kind = Unknown
		case j.Model.ByteFallback && len(p.Text) == 6 && strings.HasPrefix(p.Text, "<0x"):
			p.Kind = Byte
		case special[p.Text]:
			p.Kind = Control
		}
	}
	u, err := newUnigram(pieces, n)
	if err != nil {
		return nil, err
	}
	for _, a := range j.Added {
		if a.ID < 0 || int(a.ID) >= max(len(pieces), maxPieces) {
			return nil, fmt.Errorf("added token %q has the number %d", a.Content, a.ID)
		}
		u.addToken(a.Content, a.ID)
	}
	return u, u.finish()
}

func (n *normalizer) addNormalizer(s *step) error {
	if s == nil {
		return nil
	}
	add := func(f func(string) string) {
		if n.chars == nil {
			n.before = append(n.before, f)
		} else {
			n.after = append(n.after, f)
		}
	}
	switch s.Type {
	case "Sequence":
		for _, inner := range s.Normalizers {
			if err := n.addNormalizer(inner); err != nil {
				return err
			}
		}
	case "Precompiled":
		m, err := parseCharsMap(s.CharsMap)
		if err != nil {
			return err
		}
		n.chars = m
	case "Replace":
		switch {
		case s.Pattern.String != nil:
			from := *s.Pattern.String
			add(func(x string) string { return strings.ReplaceAll(x, from, s.Content) })
		case s.Pattern.Regex != nil:
			f, err := replaceAll(*s.Pattern.Regex, s.Content)
			if err != nil {
				return err
			}
			add(f)
		default:
			return errors.New("a Replace normalizer without a pattern")
		}
	case "Strip":
		add(func(x string) string {
			if s.StripLeft {
				x = strings.TrimLeftFunc(x, unicode.IsSpace)
			}
			if s.StripRight {
				x = strings.TrimRightFunc(x, unicode.IsSpace)
			}
			return x
		})
	case "Lowercase":
		add(strings.ToLower)
	default:
		return fmt.Errorf("normalizer %q is not known", s.Type)
	}
	return nil
}

func (n *normalizer) addPreTokenizer(s *step) error {
	if s == nil {
		return nil
	}
	switch s.Type {
	case "Sequence":
		for _, inner := range s.PreTokenizers {
			if err := n.addPreTokenizer(inner); err != nil {
				return err
			}
		}
	case "WhitespaceSplit":
		n.eachWord = true
	case "Metaspace":
		if s.Replace != spaceMark {
			return fmt.Errorf("pre-tokenizer Metaspace writes spaces as %q, want %q", s.Replace, spaceMark)
		}
		n.once, n.prefix = true, s.AddPrefix == nil || *s.AddPrefix
		if s.Prepend != nil {
			n.prefix = *s.Prepend != "never"
		}
	default:
		return fmt.Errorf("pre-tokenizer %q is not known", s.Type)
	}
	return nil
}

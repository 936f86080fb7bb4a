package text

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalizer brings a text into the form that pieces are looked up in. Its steps are
// SentencePiece's; tokenizer.json describes the same with other words.
type normalizer struct {
	chars     *charsMap // nil leaves characters as they are
	protected []string  // what chars must not touch

	prefix   bool // a space comes before the text
	once     bool // but not where there is one
	squeeze  bool // several spaces count as one, and those around the text as none
	eachWord bool // the text is cut at white space and each word is a text of its own
	before   []func(string) string
	after    []func(string) string // between characters and spaces
}

// words returns the texts to be cut into pieces, spaces written as pieces have them.
func (n *normalizer) words(s string) []string {
	for _, f := range n.before {
		s = f(s)
	}
	s = n.characters(s)
	for _, f := range n.after {
		s = f(s)
	}
	list := []string{s}
	if n.eachWord {
		list = strings.FieldsFunc(s, unicode.IsSpace)
	}
	out := make([]string, 0, len(list))
	for _, w := range list {
		if w = n.spaces(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// characters applies the map, longest match first.
func (n *normalizer) characters(s string) string {
	var b strings.Builder
	for s != "" {
		if p := n.protectedPrefix(s); p != "" {
			b.WriteString(p)
			s = s[len(p):]
			continue
		}
		if n.chars != nil {
			if to, size := n.chars.longest(s); size > 0 {
				b.WriteString(to)
				s = s[size:]
				continue
			}
		}
		r, size := utf8.DecodeRuneInString(s)
		b.WriteRune(r) // what is not UTF-8 becomes U+FFFD
		s = s[size:]
	}
	return b.String()
}

func (n *normalizer) protectedPrefix(s string) (longest string) {
	for _, p := range n.protected {
		if len(p) > len(longest) && strings.HasPrefix(s, p) {
			longest = p
		}
	}
	return longest
}

// spaces writes spaces as pieces have them.
func (n *normalizer) spaces(s string) string {
	if n.squeeze {
		s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }), " ")
	}
	if s == "" {
		return ""
	}
	s = strings.ReplaceAll(s, " ", spaceMark)
	if n.prefix && !(n.once && strings.HasPrefix(s, spaceMark)) {
		s = spaceMark + s
	}
	return s
}

// charsMap is SentencePiece's compiled rules of normalisation: a Darts-clone double
// array over UTF-8, whose values point into a list of replacements that end in NUL.
type charsMap struct {
	units  []uint32
	values string
}

// parseCharsMap reads the form in which model files hold it: the size of the array in
// bytes, the array, the replacements. An empty one is no map.
func parseCharsMap(raw []byte) (*charsMap, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) < 4 {
		return nil, fmt.Errorf("rules of normalisation: %d bytes, want a size first", len(raw))
	}
	size := binary.LittleEndian.Uint32(raw)
	raw = raw[4:]
	if size%4 != 0 || size == 0 || uint64(size) > uint64(len(raw)) {
		return nil, fmt.Errorf("rules of normalisation: an array of %d bytes in %d", size, len(raw))
	}
	m := &charsMap{units: make([]uint32, size/4), values: string(raw[size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return m, nil
}

// Bits of a unit, from darts-clone's DoubleArrayUnit.
func hasLeaf(u uint32) bool  { return u>>8&1 == 1 }
func label(u uint32) uint32  { return u & (1<<31 | 0xff) }
func offset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }

// longest returns the replacement of the longest prefix that has one, and the
// prefix's size in bytes, 0 if there is none.
func (m *charsMap) longest(s string) (to string, size int) {
	at := uint32(0)
	at ^= offset(m.units[0])
	value := -1
	for i := range len(s) {
		at ^= uint32(s[i])
		if int64(at) >= int64(len(m.units)) {
			break
		}
		u := m.units[at]
		if label(u) != uint32(s[i]) {
			break
		}
		at ^= offset(u)
		if int64(at) >= int64(len(m.units)) {
			break
		}
		if hasLeaf(u) {
			value, size = int(m.units[at]&(1<<31-1)), i+1
		}
	}
	if value < 0 || value >= len(m.values) {
		return "", 0
	}
	to = m.values[value:]
	if end := strings.IndexByte(to, 0); end >= 0 {
		to = to[:end]
	}
	return to, size
}

// replaceAll is a step that replaces what a regular expression finds.
func replaceAll(pattern, with string) (func(string) string, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("rule of normalisation: %w", err)
	}
	return func(s string) string { return re.ReplaceAllLiteralString(s, with) }, nil
}

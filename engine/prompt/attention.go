package prompt

import (
	"strconv"
	"strings"
)

// Piece is a stretch of prompt with one weight.
type Piece struct {
	Text   string
	Weight float32
}

// breakText with breakWeight is how a BREAK travels among pieces.
const (
	breakText           = "BREAK"
	breakWeight float32 = -1
)

// IsBreak tells whether the piece asks for a new chunk. A BREAK inside weighted brackets is text, as its weight is no
// longer the mark.
func (p Piece) IsBreak() bool { return p.Text == breakText && p.Weight == breakWeight }

const (
	roundWeight  float32 = 1.1
	squareWeight float32 = 1 / roundWeight
)

// attention gathers pieces and the places where brackets opened.
type attention struct {
	pieces        []Piece
	round, square []int
}

// ParseAttention splits a prompt into weighted pieces; neighbours of equal weight are joined. There is always at
// least one piece.
func ParseAttention(prompt string) []Piece {
	var a attention
	for prompt != "" {
		tok := nextToken(prompt)
		a.add(tok)
		prompt = prompt[len(tok.text):]
	}
	for _, from := range a.round {
		a.multiply(from, roundWeight)
	}
	for _, from := range a.square {
		a.multiply(from, squareWeight)
	}
	return joined(a.pieces)
}

func (a *attention) add(tok token) {
	switch {
	case tok.text == "(":
		a.round = append(a.round, len(a.pieces))
	case tok.text == "[":
		a.square = append(a.square, len(a.pieces))
	case tok.weighted:
		a.close(&a.round, tok.weight)
	case tok.text == ")" && len(a.round) > 0:
		a.close(&a.round, roundWeight)
	case tok.text == "]" && len(a.square) > 0:
		a.close(&a.square, squareWeight)
	case tok.text == `\(`:
		a.pieces = append(a.pieces, Piece{"(", 1})
	case tok.text == breakText:
		a.pieces = append(a.pieces, Piece{breakText, breakWeight})
	default:
		a.pieces = append(a.pieces, Piece{tok.text, 1})
	}
}

// close ends the innermost bracket, if one is open.
func (a *attention) close(open *[]int, weight float32) {
	if n := len(*open); n > 0 {
		a.multiply((*open)[n-1], weight)
		*open = (*open)[:n-1]
	}
}

func (a *attention) multiply(from int, weight float32) {
	for i := from; i < len(a.pieces); i++ {
		a.pieces[i].Weight *= weight
	}
}

func joined(pieces []Piece) []Piece {
	if len(pieces) == 0 {
		return []Piece{{"", 1}}
	}
	var out []Piece
	for start := 0; start < len(pieces); {
		end := start + 1
		var text strings.Builder
		text.WriteString(pieces[start].Text)
		for ; end < len(pieces) && pieces[end].Weight == pieces[start].Weight; end++ {
			text.WriteString(pieces[end].Text)
		}
		out = append(out, Piece{text.String(), pieces[start].Weight})
		start = end
	}
	return out
}

type token struct {
	text     string
	weight   float32
	weighted bool // text is ":number)"
}

// nextToken cuts the next token off a non-empty prompt: an escape, a bracket, a weight, BREAK, a lone B or colon, or a
// run of anything else.
func nextToken(s string) token {
	switch c := s[0]; c {
	case '\\':
		if len(s) > 1 && strings.IndexByte(`()[]\`, s[1]) >= 0 {
			return token{text: s[:2]}
		}
		return token{text: s[:1]}
	case '(', ')', '[', ']':
		return token{text: s[:1]}
	case ':':
		return weightToken(s)
	case 'B':
		if strings.HasPrefix(s, breakText) && (len(s) == len(breakText) || !isWordByte(s[len(breakText)])) {
			return token{text: breakText}
		}
		return token{text: s[:1]}
	}
	if end := strings.IndexAny(s, `\()[]:B`); end > 0 {
		return token{text: s[:end]}
	}
	return token{text: s}
}

// weightToken reads ":number)", where number is a sign, digits and points; the leading part that is a number counts.
// With no number in it the colon is text.
func weightToken(s string) token {
	end := 1
	if end < len(s) && (s[end] == '+' || s[end] == '-') {
		end++
	}
	digits := end
	for end < len(s) && (s[end] == '.' || isDigit(s[end])) {
		end++
	}
	if end == digits || end == len(s) || s[end] != ')' {
		return token{text: s[:1]}
	}
	weight, ok := leadingFloat(s[1:end])
	if !ok {
		return token{text: s[:1]}
	}
	return token{text: s[:end+1], weight: weight, weighted: true}
}

// leadingFloat parses up to a second point; ok is false without a digit before it or beyond float32's range.
func leadingFloat(s string) (v float32, ok bool) {
	if first := strings.IndexByte(s, '.'); first >= 0 {
		if second := strings.IndexByte(s[first+1:], '.'); second >= 0 {
			s = s[:first+1+second]
		}
	}
	f, err := strconv.ParseFloat(s, 32)
	return float32(f), err == nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWordByte(c byte) bool {
	return c == '_' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

package safetensors

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sdtool/sdtool/tensor"
)

// parser reads strict JSON (RFC 8259) as a stream of tokens. encoding/json will
// not do: it keeps the last of two equal keys, takes any case for a field's
// name, and replaces broken surrogates.
type parser struct {
	b []byte // valid UTF-8
	i int
}

// maxSkip is how deep values may nest that nobody asks for; it is serde_json's
// limit.
const maxSkip = 128

// syntaxError is what is wrong with JSON, and where.
type syntaxError struct {
	offset int
	msg    string
}

func (e *syntaxError) Error() string { return e.msg }

func (p *parser) fail(format string, args ...any) error {
	return &syntaxError{p.i, fmt.Sprintf(format, args...)}
}

// peek returns the next byte that is not white space, and 0 at the end.
func (p *parser) peek() byte {
	for ; p.i < len(p.b); p.i++ {
		switch p.b[p.i] {
		case ' ', '\t', '\r', '\n':
		default:
			return p.b[p.i]
		}
	}
	return 0
}

func (p *parser) found() string {
	if p.i >= len(p.b) {
		return "the end"
	}
	r, _ := utf8.DecodeRune(p.b[p.i:])
	return strconv.QuoteRune(r)
}

func (p *parser) expect(c byte) error {
	if p.peek() != c || p.i >= len(p.b) {
		return p.fail("found %s, want %q", p.found(), c)
	}
	p.i++
	return nil
}

// end checks that only white space is left.
func (p *parser) end() error {
	if p.peek(); p.i < len(p.b) {
		return p.fail("found %s after the end of the JSON text", p.found())
	}
	return nil
}

// object calls member for each key, with the parser at its value.
func (p *parser) object(member func(key string) error) error {
	if err := p.expect('{'); err != nil {
		return err
	}
	if p.peek() == '}' {
		p.i++
		return nil
	}
	for {
		p.peek()
		key, err := p.str()
		if err != nil {
			return err
		}
		if err := p.expect(':'); err != nil {
			return err
		}
		p.peek()
		if err := member(key); err != nil {
			return err
		}
		if p.peek() == ',' {
			p.i++
			continue
		}
		return p.expect('}')
	}
}

// array calls element with the parser at each element.
func (p *parser) array(element func() error) error {
	if err := p.expect('['); err != nil {
		return err
	}
	if p.peek() == ']' {
		p.i++
		return nil
	}
	for {
		p.peek()
		if err := element(); err != nil {
			return err
		}
		if p.peek() == ',' {
			p.i++
			continue
		}
		return p.expect(']')
	}
}

// known are the strings that headers are full of; they are not copied.
var known = knownStrings()

func knownStrings() map[string]string {
	m := map[string]string{"dtype": "dtype", "shape": "shape", "data_offsets": "data_offsets"}
	for _, d := range tensor.All() {
		if name, ok := d.Safetensors(); ok {
			m[name] = name
		}
	}
	return m
}

// str reads a string.
func (p *parser) str() (string, error) {
	if p.peek() != '"' || p.i >= len(p.b) {
		return "", p.fail("found %s, want a string", p.found())
	}
	start, escapes := p.i+1, false
	for j := start; j < len(p.b); j++ {
		switch c := p.b[j]; {
		case c == '"':
			if escapes {
				p.i = start
				return p.unescape(j)
			}
			p.i = j + 1
			if s, ok := known[string(p.b[start:j])]; ok {
				return s, nil
			}
			return string(p.b[start:j]), nil
		case c == '\\':
			escapes = true
			j++ // whatever it is, it does not end the string
		case c < ' ':
			p.i = j
			return "", p.fail("found a control character in a string")
		}
	}
	p.i = len(p.b)
	return "", p.fail("a string has no end")
}

// unescape reads a string that has escapes, up to its closing quote at end. What
// an escape stands for is never longer than the escape.
func (p *parser) unescape(end int) (string, error) {
	out := make([]byte, 0, end-p.i)
	for p.i < end {
		c := p.b[p.i]
		if c != '\\' {
			out = append(out, c)
			p.i++
			continue
		}
		r, err := p.escape()
		if err != nil {
			return "", err
		}
		out = utf8.AppendRune(out, r)
	}
	p.i = end + 1
	return string(out), nil
}

// escape reads what begins with a backslash.
func (p *parser) escape() (rune, error) {
	if p.i+1 >= len(p.b) {
		return 0, p.fail("a string has no end")
	}
	c := p.b[p.i+1]
	switch c {
	case '"', '\\', '/':
		p.i += 2
		return rune(c), nil
	case 'b', 'f', 'n', 'r', 't':
		p.i += 2
		return map[byte]rune{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}[c], nil
	case 'u':
	default:
		return 0, p.fail("found an unknown escape in a string")
	}
	r, err := p.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if p.i+1 < len(p.b) && p.b[p.i] == '\\' && p.b[p.i+1] == 'u' {
		low, err := p.hex()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, nil
		}
	}
	return 0, p.fail("found half of a surrogate pair in a string")
}

// hex reads \uXXXX.
func (p *parser) hex() (rune, error) {
	if p.i+6 > len(p.b) {
		return 0, p.fail("a string has no end")
	}
	n, err := strconv.ParseUint(string(p.b[p.i+2:p.i+6]), 16, 16)
	if err != nil {
		return 0, p.fail("found %q, want four hexadecimal digits", p.b[p.i+2:p.i+6])
	}
	p.i += 6
	return rune(n), nil
}

// number returns the text of a number.
func (p *parser) number() ([]byte, error) {
	p.peek()
	start := p.i
	digits := func() bool {
		from := p.i
		for p.i < len(p.b) && '0' <= p.b[p.i] && p.b[p.i] <= '9' {
			p.i++
		}
		return p.i > from
	}
	is := func(set string) bool {
		for k := range len(set) {
			if p.i < len(p.b) && p.b[p.i] == set[k] {
				p.i++
				return true
			}
		}
		return false
	}
	is("-")
	first := p.i
	if !digits() {
		return nil, p.fail("found %s, want a value", p.found())
	}
	if p.b[first] == '0' && p.i-first > 1 {
		return nil, p.fail("found a number with a leading zero")
	}
	if is(".") && !digits() {
		return nil, p.fail("found %s, want a digit", p.found())
	}
	if is("eE") {
		is("+-")
		if !digits() {
			return nil, p.fail("found %s, want a digit", p.found())
		}
	}
	return p.b[start:p.i], nil
}

// rangeError is a whole number that does not fit.
type rangeError string

func (e rangeError) Error() string { return "found " + string(e) + ", want less than 2^63" }

// count reads a whole number from 0 to 2^63-1.
func (p *parser) count() (int64, error) {
	at := p.i
	text, err := p.number()
	if err != nil {
		return 0, err
	}
	var n int64
	for _, c := range text {
		if c < '0' || c > '9' {
			p.i = at
			return 0, p.fail("found %s, want a whole number", tensor.Clip(string(text)))
		}
		digit := int64(c - '0')
		if n > (math.MaxInt64-digit)/10 {
			return 0, rangeError(tensor.Clip(string(text)))
		}
		n = 10*n + digit
	}
	return n, nil
}

// skip passes over any value.
func (p *parser) skip(depth int) error {
	if depth > maxSkip {
		return p.fail("found values nested more than %d deep", maxSkip)
	}
	switch p.peek() {
	case '{':
		return p.object(func(string) error { return p.skip(depth + 1) })
	case '[':
		return p.array(func() error { return p.skip(depth + 1) })
	case '"':
		_, err := p.str()
		return err
	case 't', 'f', 'n':
		for _, word := range []string{"true", "false", "null"} {
			if p.literal(word) {
				return nil
			}
		}
		return p.fail("found %s, want a value", p.found())
	}
	_, err := p.number()
	return err
}

// literal passes over a word if it is next.
func (p *parser) literal(word string) bool {
	p.peek()
	if len(p.b)-p.i < len(word) || string(p.b[p.i:p.i+len(word)]) != word {
		return false
	}
	p.i += len(word)
	return true
}

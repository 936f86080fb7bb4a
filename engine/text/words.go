package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// specials are recognised in prompts and become one token.
var specials = [...]struct {
	text string
	id   int32
}{{"<|startoftext|>", Start}, {"<|endoftext|>", End}}

// Encode returns the tokens of a prompt, cut into words as stable-diffusion.cpp does: bytes beyond ASCII are neither
// letters nor digits nor spaces, and only ASCII letters lose their case. No start, end or padding is added.
func (t *Tokenizer) Encode(prompt string) []int32 {
	var ids []int32
	prompt = strings.Join(strings.FieldsFunc(prompt, func(r rune) bool { return isSpaceByte(r) }), " ")
	for prompt = lowerASCII(prompt); prompt != ""; {
		plain, special := nextSpecial(prompt)
		ids = t.appendByteWords(ids, prompt[:plain])
		prompt = prompt[plain:]
		if special >= 0 {
			ids = append(ids, specials[special].id)
			prompt = prompt[len(specials[special].text):]
		}
	}
	return ids
}

func isSpaceByte(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// nextSpecial finds the earliest special token: the length of the text before it and its index, or -1.
func nextSpecial(s string) (plain, special int) {
	plain, special = len(s), -1
	for i, sp := range specials {
		if at := strings.Index(s, sp.text); at >= 0 && at < plain {
			plain, special = at, i
		}
	}
	return plain, special
}

// contractions are words of their own, longest alternatives being distinct by their second letter.
var contractions = [...]string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}

func contraction(s string) int {
	for _, c := range contractions {
		if strings.HasPrefix(s, c) {
			return len(c)
		}
	}
	return 0
}

type byteClass uint8

const (
	other byteClass = iota
	letter
	digit
	space
)

func classOf(c byte) byteClass {
	switch {
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		return letter
	case c >= '0' && c <= '9':
		return digit
	case isSpaceByte(rune(c)):
		return space
	}
	return other
}

func (t *Tokenizer) appendByteWords(ids []int32, s string) []int32 {
	for s != "" {
		n := contraction(s)
		if n == 0 {
			class := classOf(s[0])
			n = 1
			for class != digit && n < len(s) && classOf(s[n]) == class {
				n++
			}
			if class == space {
				s = s[n:]
				continue
			}
		}
		ids = t.appendWord(ids, s[:n])
		s = s[n:]
	}
	return ids
}

// EncodeReference returns the tokens as OpenAI's and Hugging Face's tokenizers cut words: NFC, Unicode case, letters,
// numbers and spaces. For ASCII it equals Encode.
func (t *Tokenizer) EncodeReference(prompt string) []int32 {
	var ids []int32
	for prompt != "" {
		plain, special := nextSpecial(prompt)
		ids = t.appendRuneWords(ids, normalize(prompt[:plain]))
		prompt = prompt[plain:]
		if special >= 0 {
			ids = append(ids, specials[special].id)
			prompt = prompt[len(specials[special].text):]
		}
	}
	return ids
}

// dottedI is the one character whose lower case is two; strings.ToLower maps it to one.
var dottedI = strings.NewReplacer("\u0130", "i\u0307")

func normalize(s string) string {
	return strings.ToLower(dottedI.Replace(norm.NFC.String(strings.ToValidUTF8(s, "\uFFFD"))))
}

func classOfRune(r rune) byteClass {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return digit
	case unicode.IsSpace(r):
		return space
	}
	return other
}

func (t *Tokenizer) appendRuneWords(ids []int32, s string) []int32 {
	for s != "" {
		n := contraction(s)
		if n == 0 {
			r, size := utf8.DecodeRuneInString(s)
			class := classOfRune(r)
			for n = size; class != digit && n < len(s); n += size {
				if r, size = utf8.DecodeRuneInString(s[n:]); classOfRune(r) != class {
					break
				}
			}
			if class == space {
				s = s[n:]
				continue
			}
		}
		ids = t.appendWord(ids, s[:n])
		s = s[n:]
	}
	return ids
}

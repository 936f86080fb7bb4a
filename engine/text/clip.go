package text

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed" // the merge list
	"fmt"
	"strings"
	"sync"
)

// Token numbers with a meaning of their own, and the size of the vocabulary.
const (
	Start     = 49406
	End       = 49407
	VocabSize = 49408
)

// mergeCount is what remains of the vocabulary after 256 bytes, 256 word-ending bytes and the two specials.
const mergeCount = VocabSize - 2*256 - 2

//go:embed clip_merges.txt.gz
var mergesGz []byte

// wordEnd marks a symbol that ends a word.
const wordEnd = "</w>"

type pair struct{ left, right int32 }

// Tokenizer is CLIP's byte-pair encoding.
type Tokenizer struct {
	byteToken [256]int32     // symbol of a byte; plus 256 when it ends a word
	merges    map[pair]int32 // symbol two symbols merge into; earlier merges are smaller
	strings   []string       // bytes of each token, in wordEnd notation
}

// CLIP returns the tokenizer shared by every CLIP and OpenCLIP text encoder. The first call unpacks the merge list
// (about 20 ms); an error would mean a broken build.
func CLIP() (*Tokenizer, error) { return clip() }

var clip = sync.OnceValues(func() (*Tokenizer, error) {
	zr, err := gzip.NewReader(bytes.NewReader(mergesGz))
	if err != nil {
		return nil, fmt.Errorf("unpack clip merges: %w", err)
	}
	lines := bufio.NewScanner(zr)
	lines.Scan() // header
	t := newTokenizer()
	ids := make(map[string]int32, VocabSize)
	for i, s := range t.strings {
		ids[s] = int32(i)
	}
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " ")
		l, okL := ids[left]
		r, okR := ids[right]
		if !ok || !okL || !okR {
			return nil, fmt.Errorf("clip merges: line %d: %q does not merge two known symbols",
				len(t.merges)+2, lines.Text())
		}
		id := int32(len(t.strings))
		t.merges[pair{l, r}] = id
		t.strings = append(t.strings, left+right)
		ids[left+right] = id
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("unpack clip merges: %w", err)
	}
	if len(t.merges) != mergeCount {
		return nil, fmt.Errorf("clip merges: expected %d, found %d", mergeCount, len(t.merges))
	}
	t.spellOut()
	return t, nil
})

// newTokenizer has the byte symbols only. The list writes bytes as printable characters: those that print stand for
// themselves, the others for characters from 256 on; tokens number the printing ones first.
func newTokenizer() *Tokenizer {
	t := &Tokenizer{merges: make(map[pair]int32, mergeCount), strings: make([]string, 0, VocabSize)}
	for i, b := range byteOrder() {
		t.byteToken[b] = int32(i)
		t.strings = append(t.strings, string(byteRune(b)))
	}
	for i := range 256 {
		t.strings = append(t.strings, t.strings[i]+wordEnd)
	}
	return t
}

func prints(b int) bool { return b >= '!' && b <= '~' || b >= 161 && b <= 172 || b >= 174 }

// byteOrder lists bytes in the order of their tokens.
func byteOrder() []byte {
	var first, rest []byte
	for b := range 256 {
		if prints(b) {
			first = append(first, byte(b))
		} else {
			rest = append(rest, byte(b))
		}
	}
	return append(first, rest...)
}

// byteRune is the character the merge list writes for a byte.
func byteRune(b byte) rune {
	if prints(int(b)) {
		return rune(b)
	}
	n := rune(256)
	for c := range int(b) {
		if !prints(c) {
			n++
		}
	}
	return n
}

// spellOut turns the list's characters back into bytes, once they are no longer needed as keys.
func (t *Tokenizer) spellOut() {
	var pairs []string
	for b := range 256 {
		pairs = append(pairs, string(byteRune(byte(b))), string([]byte{byte(b)}))
	}
	toBytes := strings.NewReplacer(pairs...)
	for i, s := range t.strings {
		word, ends := strings.CutSuffix(s, wordEnd)
		t.strings[i] = toBytes.Replace(word)
		if ends {
			t.strings[i] += wordEnd
		}
	}
	t.strings = append(t.strings, "<|startoftext|>", "<|endoftext|>")
}

// appendWord appends the tokens of one word.
func (t *Tokenizer) appendWord(dst []int32, word string) []int32 {
	if word == "" {
		return dst
	}
	base := len(dst)
	for i := range len(word) {
		dst = append(dst, t.byteToken[word[i]])
	}
	dst[len(dst)-1] += 256
	return dst[:base+t.merge(dst[base:])]
}

// merge applies merges in place, earliest in the list first, all places of one at a time; it returns the new length.
func (t *Tokenizer) merge(s []int32) int {
	for len(s) > 1 {
		best, at := int32(VocabSize), pair{}
		for i := range len(s) - 1 {
			p := pair{s[i], s[i+1]}
			if id, ok := t.merges[p]; ok && id < best {
				best, at = id, p
			}
		}
		if best == VocabSize {
			break
		}
		n := 0
		for i := 0; i < len(s); i++ {
			if i+1 < len(s) && s[i] == at.left && s[i+1] == at.right {
				s[n] = best
				i++
			} else {
				s[n] = s[i]
			}
			n++
		}
		s = s[:n]
	}
	return len(s)
}

// Decode spells tokens out, for people to read: words are separated by spaces and specials left out. Numbers outside
// the vocabulary are left out too.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 0 || id >= Start {
			continue
		}
		word, ends := strings.CutSuffix(t.strings[id], wordEnd)
		b.WriteString(word)
		if ends {
			b.WriteByte(' ')
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(b.String(), " ,", ","))
}

package text

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type clipCase struct {
	Text      string
	Reference []int32
	Bytes     []int32
}

func clipCases(t testing.TB) []clipCase {
	t.Helper()
	raw, err := os.ReadFile("testdata/clip_cases.json")
	require.NoError(t, err)
	var cases []clipCase
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.GreaterOrEqual(t, len(cases), 200)
	return cases
}

func TestEncode(t *testing.T) {
	tok, err := CLIP()
	require.NoError(t, err)
	for _, c := range clipCases(t) {
		assert.Equal(t, c.Bytes, append([]int32{}, tok.Encode(c.Text)...), "bytes of %q", c.Text)
		assert.Equal(t, c.Reference, append([]int32{}, tok.EncodeReference(c.Text)...), "reference of %q", c.Text)
	}
}

func TestEncodeAgreesOnASCII(t *testing.T) {
	tok, err := CLIP()
	require.NoError(t, err)
	for _, c := range clipCases(t) {
		if strings.IndexFunc(c.Text, func(r rune) bool { return r > 127 }) < 0 && !strings.Contains(c.Text, "<|START") {
			assert.Equal(t, tok.EncodeReference(c.Text), tok.Encode(c.Text), "%q", c.Text)
		}
	}
}

func TestEncodeInvalidUTF8(t *testing.T) {
	tok, err := CLIP()
	require.NoError(t, err)
	assert.NotEmpty(t, tok.Encode("\xff\xfe"))
	assert.Equal(t, tok.EncodeReference("\uFFFD"), tok.EncodeReference("\xff"))
}

func TestDecode(t *testing.T) {
	tok, err := CLIP()
	require.NoError(t, err)
	for _, c := range []struct{ in, want string }{
		{"a photo, of a CAT", "a photo, of a cat"},
		{"猫 😀", "猫 😀"},
		{"", ""},
	} {
		assert.Equal(t, c.want, tok.Decode(tok.Encode(c.in)))
	}
	assert.Empty(t, tok.Decode([]int32{Start, End, -1, VocabSize}))
}

func TestVocabulary(t *testing.T) {
	tok, err := CLIP()
	require.NoError(t, err)
	assert.Len(t, tok.strings, VocabSize)
	assert.Equal(t, []int32{Start}, tok.Encode("<|startoftext|>"))
	assert.Equal(t, []int32{End}, tok.Encode("<|ENDOFTEXT|>"))
}

func FuzzEncode(f *testing.F) {
	for _, c := range clipCases(f) {
		f.Add(c.Text)
	}
	f.Add("\xff'\xc3(")
	tok, err := CLIP()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, s string) {
		for _, ids := range [][]int32{tok.Encode(s), tok.EncodeReference(s)} {
			for _, id := range ids {
				if id < 0 || id >= VocabSize {
					t.Fatalf("token %d of %q is outside the vocabulary", id, s)
				}
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	tok, err := CLIP()
	require.NoError(b, err)
	for b.Loop() {
		tok.Encode("a photo of an astronaut riding a horse, masterpiece, best quality, ultra-detailed")
	}
}

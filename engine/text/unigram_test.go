package text_test

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/text"
	"github.com/sdtool/sdtool/gguf"
)

// unigramCase is a string with what the references make of it.
type unigramCase struct {
	Text  string
	SPM   []int32
	Bytes []int32
	Fast  []int32
	Words []int32
}

func unpack(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	return raw
}

func unigramCases(t *testing.T) []unigramCase {
	var list []unigramCase
	require.NoError(t, json.Unmarshal(unpack(t, "unigram_cases.json.gz"), &list))
	require.Greater(t, len(list), 200)
	return list
}

// open writes content into a file and reads the tokenizer in it.
func open(t *testing.T, name string, content []byte) *text.Unigram {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o666))
	u, err := text.OpenUnigram(path)
	require.NoError(t, err)
	return u
}

func same(t *testing.T, u *text.Unigram, cases []unigramCase, want func(c unigramCase) []int32) {
	t.Helper()
	for _, c := range cases {
		got := u.Encode(c.Text)
		if got == nil {
			got = []int32{}
		}
		assert.Equal(t, want(c), got, "%q", c.Text)
	}
}

func TestUnigramAgainstSentencePiece(t *testing.T) {
	u := open(t, "spiece.model", unpack(t, "unigram.model.gz"))
	require.Equal(t, []int32{1, 0, 2}, []int32{u.EOS, u.Pad, u.Unk})
	same(t, u, unigramCases(t), func(c unigramCase) []int32 { return c.SPM })
}

func TestUnigramWithBytesAgainstSentencePiece(t *testing.T) {
	same(t, open(t, "spiece.model", unpack(t, "bytes.model.gz")), unigramCases(t), func(c unigramCase) []int32 { return c.Bytes })
}

// hf is the vocabulary of a model in Hugging Face's form.
func hf(t *testing.T, words bool) []byte {
	t.Helper()
	pieces, chars := text.PiecesOf(t, unpack(t, "unigram.model.gz"))
	vocab := make([][]any, len(pieces))
	for i, p := range pieces {
		vocab[i] = []any{p.Text, p.Score}
	}
	meta := map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}
	normalizer := map[string]any{"type": "Precompiled", "precompiled_charsmap": base64.StdEncoding.EncodeToString(chars)}
	var pre any = meta
	if words {
		pre = map[string]any{"type": "Sequence", "pretokenizers": []any{map[string]any{"type": "WhitespaceSplit"}, meta}}
	} else {
		normalizer = map[string]any{"type": "Sequence", "normalizers": []any{normalizer,
			map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": " {2,}"}, "content": " "}}}
	}
	var added []any
	for i, s := range []string{"<pad>", "</s>", "<unk>", "<extra_id_0>"} {
		added = append(added, map[string]any{"id": i, "content": s, "special": true})
	}
	raw, err := json.Marshal(map[string]any{"added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre,
		"model": map[string]any{"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": false}})
	require.NoError(t, err)
	return raw
}

// The tokenizers package applies the rules of normalisation to grapheme clusters and
// takes the shortest match, SentencePiece and we take the longest anywhere: they
// differ where a combining mark follows a character that has a rule together with it.
func graphemes(s string) bool {
	for _, r := range s {
		if r >= 0x300 && r < 0x370 || r >= 0x1100 && r < 0x1200 || r == 0x200d || r == 0xfe0f || r == 0x3099 || r == 0xff9e || r >= 0x1f3fb && r <= 0x1f3ff {
			return true
		}
	}
	return false
}

func TestUnigramAgainstTokenizers(t *testing.T) {
	var cases []unigramCase
	for _, c := range unigramCases(t) {
		if !graphemes(c.Text) {
			cases = append(cases, c)
		}
	}
	require.Greater(t, len(cases), 200)
	same(t, open(t, "tokenizer.json", hf(t, false)), cases, func(c unigramCase) []int32 { return c.Fast })
	same(t, open(t, "tokenizer.json", hf(t, true)), cases, func(c unigramCase) []int32 { return c.Words })
}

func TestUnigramFromGGUF(t *testing.T) {
	pieces, chars := text.PiecesOf(t, unpack(t, "unigram.model.gz"))
	var texts []string
	var scores []float32
	var kinds []int32
	for _, p := range pieces {
		texts, scores, kinds = append(texts, p.Text), append(scores, p.Score), append(kinds, int32(p.Kind))
	}
	md := gguf.Metadata{}
	md.Set("tokenizer.ggml.model", gguf.String("t5"))
	_, err := text.UnigramFromGGUF(md)
	require.ErrorContains(t, err, "do not go together")
	md.Set("tokenizer.ggml.tokens", gguf.StringArray(texts))
	md.Set("tokenizer.ggml.scores", gguf.F32Array(scores))
	md.Set("tokenizer.ggml.token_type", gguf.I32Array(kinds))
	md.Set("tokenizer.ggml.precompiled_charsmap", gguf.U8Array(chars))
	md.Set("tokenizer.ggml.add_space_prefix", gguf.Bool(true))
	md.Set("tokenizer.ggml.remove_extra_whitespaces", gguf.Bool(true))
	md.Set("tokenizer.ggml.eos_token_id", gguf.U32(1))
	u, err := text.UnigramFromGGUF(md)
	require.NoError(t, err)
	same(t, u, unigramCases(t), func(c unigramCase) []int32 { return c.SPM })
	_, err = text.UnigramFromGGUF(nil)
	require.ErrorIs(t, err, text.ErrNoTokenizer)
	_, err = text.UnigramFromGGUF(gguf.Metadata{{Key: "tokenizer.ggml.model", Value: gguf.String("gpt2")}})
	require.ErrorIs(t, err, text.ErrNotUnigram)
}

func TestUnigramFolders(t *testing.T) {
	dir := t.TempDir()
	_, err := text.OpenUnigram(dir)
	require.ErrorIs(t, err, text.ErrNoTokenizer)
	// CLIP's tokenizer beside it is passed over.
	clip := filepath.Join(dir, "tokenizer")
	require.NoError(t, os.Mkdir(clip, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(clip, "tokenizer.json"), []byte(`{"model":{"type":"BPE","vocab":{"a":1}}}`), 0o666))
	_, err = text.OpenUnigram(dir)
	require.ErrorIs(t, err, text.ErrNoTokenizer)
	require.ErrorIs(t, err, text.ErrNotUnigram)
	second := filepath.Join(dir, "tokenizer_2")
	require.NoError(t, os.Mkdir(second, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(second, "spiece.model"), unpack(t, "unigram.model.gz"), 0o666))
	u, err := text.OpenUnigram(dir)
	require.NoError(t, err)
	require.NotEmpty(t, u.Encode("a fox"))
	_, err = text.OpenUnigram(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestUnigramRefusesDamage(t *testing.T) {
	model := unpack(t, "unigram.model.gz")
	for name, raw := range map[string][]byte{
		"empty": nil, "cut": model[:len(model)/2], "text": []byte("version https://git-lfs"), "no pieces": []byte(`{"model":{"type":"Unigram","vocab":[]}}`),
		"no json": []byte(`{"model":`), "pieces without scores": []byte(`{"model":{"type":"Unigram","vocab":["a"]}}`),
		"unknown normalizer": []byte(`{"normalizer":{"type":"Magic"},"model":{"type":"Unigram","vocab":[["a",-1]]}}`),
		"no unknown token":   []byte(`{"model":{"type":"Unigram","vocab":[["a",-1]]}}`),
	} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, raw, 0o666))
		_, err := text.OpenUnigram(path)
		require.ErrorContains(t, err, "read tokenizer "+path, name)
	}
}

func FuzzOpenUnigram(f *testing.F) {
	f.Add([]byte(`{"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["</s>",0],["▁a",-2.5]]},"pre_tokenizer":{"type":"Metaspace","replacement":"▁"}}`), "a b")
	f.Add([]byte("\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02\n\x0d\n\x04</s>\x15\x00\x00\x00\x00\x18\x03\n\x08\n\x01a\x15\x00\x00\x80\xbf"), "aa\xff")
	f.Add(unpackAll(f)[:4096], "hello")
	f.Fuzz(func(t *testing.T, raw []byte, s string) {
		u, err := text.ParseUnigram(raw)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		for _, id := range u.Encode(s) {
			require.GreaterOrEqual(t, id, int32(0))
		}
	})
}

func unpackAll(f *testing.F) []byte { return unpack(f, "unigram.model.gz") }

func TestEncodeKeepsUTF8(t *testing.T) {
	u := open(t, "spiece.model", unpack(t, "unigram.model.gz"))
	require.NotPanics(t, func() { u.Encode("\xff\xfe a \xc3") })
	require.Greater(t, len(u.Encode(strings.Repeat("fox ", 2000))), 1999)
}

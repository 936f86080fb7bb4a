package text

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sdtool/sdtool/gguf"
)

// maxTokenizerFile bounds the files read, in bytes; the largest in use has 17 MB.
const maxTokenizerFile = 256 << 20

// tokenizerFiles are the names under which folders hold a tokenizer, in the order in
// which they are tried, and tokenizerFolders the subfolders of diffusers' pipelines.
var (
	tokenizerFiles   = []string{"tokenizer.json", "spiece.model", "tokenizer.model"}
	tokenizerFolders = []string{".", "tokenizer_2", "tokenizer_3", "tokenizer"}
)

// OpenUnigram reads a unigram tokenizer from a tokenizer.json, a SentencePiece model
// (told apart by content), a GGUF file with tokenizer.ggml keys, or a folder that
// holds one, which may be diffusers'. Its errors name the file; they wrap
// ErrNoTokenizer if a folder holds none and ErrNotUnigram if it is of another kind.
func OpenUnigram(path string) (*Unigram, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w", err)
	}
	if info.IsDir() {
		return openUnigramFolder(path)
	}
	u, err := openUnigramFile(path, info)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer %s: %w", path, err)
	}
	return u, nil
}

func openUnigramFile(path string, info fs.FileInfo) (*Unigram, error) {
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	head := make([]byte, 4)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	_, _ = f.ReadAt(head, 0) // a shorter file is no GGUF
	if err := f.Close(); err != nil {
		return nil, err
	}
	if string(head) == "GGUF" {
		g, err := gguf.Open(path)
		if err != nil {
			return nil, err
		}
		u, err := UnigramFromGGUF(g.Metadata)
		return u, errors.Join(err, g.Close())
	}
	if info.Size() > maxTokenizerFile {
		return nil, fmt.Errorf("%d bytes, want at most %d", info.Size(), maxTokenizerFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseUnigram(raw)
}

// parseUnigram tells the two forms apart: JSON begins with a brace, which is no field
// of a SentencePiece model.
func parseUnigram(raw []byte) (*Unigram, error) {
	if bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		return parseTokenizerJSON(raw)
	}
	return parseSPiece(raw)
}

// openUnigramFolder looks through a folder and the subfolders of a pipeline.
func openUnigramFolder(dir string) (*Unigram, error) {
	var other error
	for _, sub := range tokenizerFolders {
		for _, name := range tokenizerFiles {
			path := filepath.Join(dir, sub, name)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			u, err := OpenUnigram(path)
			if err == nil {
				return u, nil
			}
			if !errors.Is(err, ErrNotUnigram) {
				return nil, err
			}
			other = err
		}
	}
	if other != nil {
		return nil, fmt.Errorf("%w for T5 in %s: %w", ErrNoTokenizer, dir, other)
	}
	return nil, fmt.Errorf("%w in %s: no tokenizer.json or spiece.model there or in tokenizer_2, tokenizer_3, tokenizer", ErrNoTokenizer, dir)
}

// GGUFKey is the metadata key of GGUF files that carry a tokenizer.
const GGUFKey = "tokenizer.ggml.model"

// Keys of a tokenizer in GGUF metadata (ggml's docs/gguf.md and llama.cpp's
// gguf-py/gguf/constants.py).
const (
	keyModel    = GGUFKey
	keyTokens   = "tokenizer.ggml.tokens"
	keyScores   = "tokenizer.ggml.scores"
	keyKinds    = "tokenizer.ggml.token_type"
	keyCharsMap = "tokenizer.ggml.precompiled_charsmap"
	keyPrefix   = "tokenizer.ggml.add_space_prefix"
	keySqueeze  = "tokenizer.ggml.remove_extra_whitespaces"
	keyUnk      = "tokenizer.ggml.unknown_token_id"
	keyEOS      = "tokenizer.ggml.eos_token_id"
	keyPad      = "tokenizer.ggml.padding_token_id"
)

// UnigramFromGGUF reads the tokenizer that llama.cpp's converter puts into a T5 file.
// Without one the error wraps ErrNoTokenizer.
func UnigramFromGGUF(md gguf.Metadata) (*Unigram, error) {
	kind, ok := md.Str(keyModel)
	if !ok {
		return nil, fmt.Errorf("%w: no key %s", ErrNoTokenizer, keyModel)
	}
	if kind != "t5" {
		return nil, fmt.Errorf("%w: %s is %q, want t5", ErrNotUnigram, keyModel, kind)
	}
	tokens, ok := md.Get(keyTokens)
	texts, isStrings := tokens.Strings()
	scores, ok2 := md.Get(keyScores)
	kinds, ok3 := md.Get(keyKinds)
	kindList, isInts := kinds.Ints()
	if !ok || !ok2 || !ok3 || !isStrings || !isInts || scores.Len() != len(texts) || len(kindList) != len(texts) {
		return nil, fmt.Errorf("%s, %s and %s do not go together", keyTokens, keyScores, keyKinds)
	}
	pieces := make([]Piece, len(texts))
	for i, text := range texts {
		score, ok := scores.At(i).Float()
		if !ok || kindList[i] < 0 || kindList[i] > 255 {
			return nil, fmt.Errorf("%s: entry %d is no number, or of kind %d", keyScores, i, kindList[i])
		}
		pieces[i] = Piece{text, float32(score), Kind(kindList[i])}
	}
	n := normalizer{prefix: boolKey(md, keyPrefix), squeeze: boolKey(md, keySqueeze)}
	if v, ok := md.Get(keyCharsMap); ok {
		list, ok := v.Ints()
		if !ok {
			return nil, fmt.Errorf("%s is no list of bytes", keyCharsMap)
		}
		raw := make([]byte, len(list))
		for i, b := range list {
			raw[i] = byte(b)
		}
		var err error
		if n.chars, err = parseCharsMap(raw); err != nil {
			return nil, err
		}
	}
	u, err := newUnigram(pieces, n)
	if err != nil {
		return nil, err
	}
	for key, to := range map[string]*int32{keyUnk: &u.Unk, keyEOS: &u.EOS, keyPad: &u.Pad} {
		if v, ok := md.Int(key); ok {
			*to = int32(v)
		}
	}
	return u, u.finish()
}

// boolKey reads a switch that is on unless the file says otherwise.
func boolKey(md gguf.Metadata, key string) bool {
	v, ok := md.Get(key)
	if !ok {
		return true
	}
	on, ok := v.Bool()
	return on || !ok
}

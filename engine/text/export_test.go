package text

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// ParseUnigram reads a tokenizer.json or a SentencePiece model.
func ParseUnigram(raw []byte) (*Unigram, error) { return parseUnigram(raw) }

// PiecesOf returns the vocabulary and the rules of normalisation of a SentencePiece model.
func PiecesOf(t *testing.T, raw []byte) (pieces []Piece, chars []byte) {
	u, err := parseSPiece(raw)
	require.NoError(t, err)
	require.NoError(t, fields(raw, func(f field) error {
		if f.number != modelNormalizer {
			return nil
		}
		return fields(f.bytes, func(f field) error {
			if f.number == normalChars {
				chars = f.bytes
			}
			return nil
		})
	}))
	return u.pieces, chars
}

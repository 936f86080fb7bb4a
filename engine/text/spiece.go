package text

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Field numbers of sentencepiece_model.proto.
const (
	modelPieces     = 1
	modelTrainer    = 2
	modelNormalizer = 3

	pieceText  = 1
	pieceScore = 2
	pieceKind  = 3

	trainerType  = 3
	trainerUnk   = 40
	trainerEOS   = 42
	trainerPad   = 43
	typeUnigram  = 1
	normalChars  = 2
	normalPrefix = 3
	normalSpaces = 4
	normalEscape = 5
)

// maxPieces bounds a vocabulary; the largest in use have 256,384 pieces.
const maxPieces = 1 << 21

// parseSPiece reads a SentencePiece model.
func parseSPiece(raw []byte) (*Unigram, error) {
	var pieces []Piece
	n := normalizer{prefix: true, squeeze: true}
	eos, pad, unk, kind := int32(-1), int32(-1), int32(-1), uint64(typeUnigram)
	err := fields(raw, func(f field) error {
		switch f.number {
		case modelPieces:
			p := Piece{Kind: Normal}
			err := fields(f.bytes, func(f field) error {
				switch f.number {
				case pieceText:
					p.Text = string(f.bytes)
				case pieceScore:
					p.Score = math.Float32frombits(uint32(f.value))
				case pieceKind:
					p.Kind = Kind(min(f.value, 255))
				}
				return nil
			})
			if pieces = append(pieces, p); len(pieces) > maxPieces {
				return fmt.Errorf("more than %d pieces", maxPieces)
			}
			return err
		case modelTrainer:
			return fields(f.bytes, func(f field) error {
				switch f.number {
				case trainerType:
					kind = f.value
				case trainerUnk:
					unk = int32(f.value)
				case trainerEOS:
					eos = int32(f.value)
				case trainerPad:
					pad = int32(f.value)
				}
				return nil
			})
		case modelNormalizer:
			return fields(f.bytes, func(f field) (err error) {
				switch f.number {
				case normalChars:
					n.chars, err = parseCharsMap(f.bytes)
				case normalPrefix:
					n.prefix = f.value != 0
				case normalSpaces:
					n.squeeze = f.value != 0
				case normalEscape:
					if f.value == 0 {
						err = errors.New("spaces that are not escaped are not supported")
					}
				}
				return err
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if kind != typeUnigram {
		return nil, fmt.Errorf("%w: a SentencePiece model of type %d, want unigram (1)", ErrNotUnigram, kind)
	}
	u, err := newUnigram(pieces, n)
	if err != nil {
		return nil, err
	}
	set := func(to *int32, v int32) {
		if *to < 0 {
			*to = v
		}
	}
	set(&u.Unk, unk)
	set(&u.EOS, eos)
	set(&u.Pad, pad)
	return u, u.finish()
}

// field is one of a protobuf message: a number, or bytes.
type field struct {
	number int
	value  uint64
	bytes  []byte
}

// fields calls f with every field of a message.
func fields(raw []byte, f func(field) error) error {
	const (
		varint = 0
		eight  = 1
		length = 2
		four   = 5
	)
	for len(raw) > 0 {
		tag, n := binary.Uvarint(raw)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
			return errors.New("not a protobuf message")
		}
		raw = raw[n:]
		out := field{number: int(tag >> 3)}
		size := 0
		switch tag & 7 {
		case varint:
			if out.value, size = binary.Uvarint(raw); size <= 0 {
				return errors.New("a number is cut short")
			}
		case eight, four:
			size = map[uint64]int{eight: 8, four: 4}[tag&7]
			if len(raw) < size {
				return errors.New("a number is cut short")
			}
			out.value = uint64(binary.LittleEndian.Uint32(raw))
		case length:
			long, n := binary.Uvarint(raw)
			if n <= 0 || long > uint64(len(raw)-n) {
				return fmt.Errorf("a field of %d bytes, %d are left", long, len(raw))
			}
			out.bytes, size = raw[n:n+int(long)], n+int(long)
		default:
			return fmt.Errorf("a field of unknown form %d", tag&7)
		}
		raw = raw[size:]
		if err := f(out); err != nil {
			return err
		}
	}
	return nil
}

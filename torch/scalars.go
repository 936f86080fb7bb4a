package torch

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sdtool/sdtool/tensor"
)

// The opcodes that push numbers and strings.

// number reads a little-endian number of n bytes.
func (m *machine) number(n int) (uint64, error) {
	b, err := m.in.take(n)
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

func (m *machine) integer(n int, signed bool) error {
	v, err := m.number(n)
	if err != nil {
		return err
	}
	m.spend(costBox)
	if signed {
		return m.push(int64(int32(v)))
	}
	return m.push(int64(v))
}

func (m *machine) intLine() error {
	s, err := m.in.line()
	if err != nil {
		return err
	}
	m.spend(costBox + int64(len(s)))
	switch s = strings.TrimSuffix(s, "L"); s {
	case "00":
		return m.push(false)
	case "01":
		return m.push(true)
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return m.push(n)
	}
	return m.push([]byte(s))
}

func (m *machine) floatLine() error {
	s, err := m.in.line()
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return m.fail("found %q for a float", tensor.Clip(s))
	}
	m.spend(costBox)
	return m.push(f)
}

func (m *machine) float() error {
	b, err := m.in.take(8)
	if err != nil {
		return err
	}
	m.spend(costBox)
	return m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
}

// counted reads a length of n bytes and that many bytes.
func (m *machine) counted(n int) ([]byte, error) {
	size, err := m.number(n)
	if err != nil {
		return nil, err
	}
	if size > math.MaxInt64 {
		return nil, m.fail("found a length of %d bytes", size)
	}
	if m.spend(costBox + int64(min(size, uint64(m.in.left())))); m.over() {
		return nil, m.tooMuch()
	}
	return m.in.copyOut(int64(size))
}

// long reads an integer of any length; those that do not fit int64 stay bytes.
func (m *machine) long(n int) error {
	b, err := m.counted(n)
	if err != nil {
		return err
	}
	if len(b) > 8 {
		return m.push(b)
	}
	var v int64
	for i, c := range b {
		v |= int64(c) << (8 * i)
	}
	if n := len(b); n > 0 && n < 8 && b[n-1] >= 0x80 {
		v -= 1 << (8 * n)
	}
	return m.push(v)
}

func (m *machine) raw(n int) error {
	b, err := m.counted(n)
	if err != nil {
		return err
	}
	return m.push(b)
}

// text reads a string; want tells those that must be UTF-8 from Python 2's.
func (m *machine) text(n int, want bool) error {
	b, err := m.counted(n)
	if err != nil {
		return err
	}
	if !utf8.Valid(b) {
		if want {
			return m.fail("found a string that is not UTF-8")
		}
		return m.push(b)
	}
	m.spend(int64(len(b)))
	return m.push(string(b))
}

func (m *machine) quoted() error {
	s, err := m.in.line()
	if err != nil {
		return err
	}
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '\'' && s[0] != '"' {
		return m.fail("found a string without quotes")
	}
	m.spend(costBox + int64(len(s)))
	return m.push(s[1 : len(s)-1])
}

func (m *machine) unicodeLine() error {
	s, err := m.in.line()
	if err != nil {
		return err
	}
	if !utf8.ValidString(s) {
		return m.fail("found a string that is not UTF-8")
	}
	m.spend(costBox + int64(len(s)))
	return m.push(s)
}

// Package golden reads the figures that stable-diffusion.cpp left for synthetic
// models; see the README of each folder.
package golden

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
)

//go:embed flux_d1_h512/*.txt
var files embed.FS

// Tensor is what one output tensor of a conversion must be.
type Tensor struct {
	Name string
	NE   []int64 // innermost first
	GGML int32   // type id
	hash string
}

// Matches reports whether the tensor's bytes, read from r, are the expected ones.
func (t Tensor) Matches(r io.Reader) (bool, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return false, err
	}
	return strings.HasPrefix(hex.EncodeToString(h.Sum(nil)), t.hash), nil
}

// Conversion is one run of the neighbour.
type Conversion struct {
	Type    string // of --type
	Imatrix bool   // with the synthetic importance matrix
	Tensors []Tensor
}

// Flux returns the conversions of the synthetic FLUX.
func Flux() ([]Conversion, error) {
	names, err := lines("flux_d1_h512/tensors.txt")
	if err != nil {
		return nil, err
	}
	rows, err := lines("flux_d1_h512/hashes.txt")
	if err != nil {
		return nil, err
	}
	var out []Conversion
	for _, row := range rows {
		f := strings.Fields(row)
		if len(f) != len(names)+2 {
			return nil, fmt.Errorf("hashes.txt: %d fields for %d tensors", len(f), len(names))
		}
		c := Conversion{Type: f[0], Imatrix: f[1] == "imat"}
		for i, name := range names {
			t, err := parse(name, f[2+i])
			if err != nil {
				return nil, err
			}
			c.Tensors = append(c.Tensors, t)
		}
		out = append(out, c)
	}
	return out, nil
}

func parse(name, figure string) (t Tensor, err error) {
	var dims, id string
	t.Name, dims, _ = strings.Cut(name, " ")
	for d := range strings.SplitSeq(dims, ",") {
		n, err := strconv.ParseInt(d, 10, 64)
		if err != nil {
			return t, err
		}
		t.NE = append(t.NE, n)
	}
	id, t.hash, _ = strings.Cut(figure, ":")
	v, err := strconv.ParseInt(id, 10, 32)
	t.GGML = int32(v)
	return t, err
}

func lines(name string) ([]string, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}

// Package synth makes synthetic checkpoints with the real tensor names and shapes
// of model families. Every value is a pure function of the tensor's name and the
// element's index, so that two machines, and the Python program that made the
// golden data, get the same bytes.
//
// An element is u = splitmix64(fnv1a64(name) + index), its top 24 bits as a number in
// [-1, 1), times sqrt(3/fan_in); norm weights are 1 + 0.1·u, biases 0.02·u.
package synth

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// Model is a list of tensors in the order in which they are written.
type Model []tensor.Info

func (m *Model) add(name string, shape ...int64) {
	*m = append(*m, tensor.Info{Name: name, Shape: shape})
}

func (m *Model) linear(p string, out, in int64, bias bool) {
	m.add(p+".weight", out, in)
	if bias {
		m.add(p+".bias", out)
	}
}

func (m *Model) conv(p string, out, in, k int64) {
	m.add(p+".weight", out, in, k, k)
	m.add(p+".bias", out)
}

func (m *Model) norm(p string, c int64) {
	m.add(p+".weight", c)
	m.add(p+".bias", c)
}

// hash is FNV-1a, 64 bits.
func hash(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}

// mix is the output step of splitmix64.
func mix(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Fill sets dst to the tensor's elements from first on.
func Fill(t tensor.Info, first int64, dst []float32) {
	base := hash(t.Name)
	fan := int64(1)
	for _, n := range t.Shape[min(1, len(t.Shape)):] {
		fan *= n
	}
	scale := float32(math.Sqrt(3 / float64(fan)))
	for i := range dst {
		u := float32(mix(base+uint64(first)+uint64(i))>>40)/(1<<23) - 1
		switch {
		case strings.HasSuffix(t.Name, ".bias"):
			dst[i] = 0.02 * u
		case len(t.Shape) == 1:
			dst[i] = 1 + float32(0.1*u)
		default:
			dst[i] = scale * u
		}
	}
}

// Importance returns the synthetic importance of a weight's columns, times the 4
// calls that the file says.
func Importance(name string, cols int64) []float32 {
	base := hash(name + ".imatrix")
	out := make([]float32, cols)
	for j := range out {
		out[j] = float32(mix(base+uint64(j))>>40) / (1 << 24)
	}
	fourthPowers(name, out)
	for j, u4 := range out {
		out[j] = 4 * (0.05 + float32(u4*20))
	}
	return out
}

// important reports whether WriteImatrix has an entry for the tensor.
func important(t tensor.Info) bool {
	return strings.HasSuffix(t.Name, ".weight") && len(t.Shape) == 2
}

// WriteImatrix writes a legacy .dat with an entry for each 2-D ".weight" of the
// model, names prefixed.
func WriteImatrix(path, prefix string, m Model) error {
	var out []byte
	put := func(v int) { out = binary.LittleEndian.AppendUint32(out, uint32(v)) }
	put(0)
	n := 0
	for _, t := range m {
		if !important(t) {
			continue
		}
		n++
		put(len(prefix + t.Name))
		out = append(out, prefix+t.Name...)
		put(4)
		put(int(t.Shape[1]))
		for _, v := range Importance(prefix+t.Name, t.Shape[1]) {
			put(int(math.Float32bits(v)))
		}
	}
	put(0)
	binary.LittleEndian.PutUint32(out, uint32(n))
	return os.WriteFile(path, out, 0o666)
}

// step is how many elements are made at a time.
const step = 1 << 20

// Write writes the model as safetensors in F32, F16 or BF16.
func Write(path string, m Model, d tensor.DType, encode func(dst []byte, src []float32) error) error {
	infos := make([]tensor.Info, len(m))
	for i, t := range m {
		t.DType = d
		infos[i] = t
	}
	layout, err := safetensors.NewLayout(nil, infos)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.Write(layout.Header); err != nil {
		return err
	}
	if err := writeTensors(w, infos, encode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

func writeTensors(w io.Writer, infos []tensor.Info, encode func(dst []byte, src []float32) error) error {
	values := make([]float32, step)
	raw := make([]byte, 4*step)
	for _, t := range infos {
		n, err := t.Elements()
		if err != nil {
			return err
		}
		for first := int64(0); first < n; first += step {
			part := values[:min(step, n-first)]
			Fill(t, first, part)
			bytes := raw[:int64(len(part))*t.DType.BlockBytes()]
			if err := encode(bytes, part); err != nil {
				return err
			}
			if _, err := w.Write(bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

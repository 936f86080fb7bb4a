// Package enginetest gives the engine's tests weights that need no files and the
// values that torch computed with the same ones.
package enginetest

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

// synthetic is a tensor whose values are computed when they are read.
type synthetic struct{ tensor.Info }

func (s synthetic) Size() int64 { n, _ := s.Bytes(); return n }

func (s synthetic) ReadAt(p []byte, off int64) (int, error) {
	width := s.DType.BlockBytes()
	values := make([]float32, int64(len(p))/width)
	synth.Fill(s.Info, off/width, values)
	for i, v := range values {
		if s.DType == tensor.F16 {
			binary.LittleEndian.PutUint16(p[2*i:], uint16(float16.Fromfloat32(v)))
		} else {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
		}
	}
	return len(p), nil
}

// Tensors returns weights of the given shapes in the order of their names: f32, and
// of type d (f16 or f32) where wide says so of the shape.
func Tensors(shapes map[string][]int64, d tensor.DType, wide func(shape []int64) bool) []tensor.Tensor {
	var names []string
	for name := range shapes {
		names = append(names, name)
	}
	slices.Sort(names)
	var list []tensor.Tensor
	for _, name := range names {
		info := tensor.Info{Name: name, DType: tensor.F32, Shape: shapes[name]}
		if wide(info.Shape) {
			info.DType = d
		}
		list = append(list, tensor.Tensor{Info: info, Source: synthetic{info}})
	}
	return list
}

// Matrix reports whether a shape has more than one axis, Kernel whether it is that
// of a convolution.
func Matrix(shape []int64) bool { return len(shape) > 1 }

// Kernel reports whether a shape is that of a convolution.
func Kernel(shape []int64) bool { return len(shape) == 4 }

// Values returns n values from -1 to 1 for a network's input of that name.
func Values(name string, n int64) []float32 {
	x := make([]float32, n)
	synth.Fill(tensor.Info{Name: name, Shape: []int64{3, 1}}, 0, x) // a fan of one: √3 times the value
	for i := range x {
		x[i] *= float32(1 / math.Sqrt(3))
	}
	return x
}

// Read reads the JSON of a file in engine/testdata, which is compressed.
func Read(t testing.TB, name string, into any) {
	t.Helper()
	_, here, _, ok := runtime.Caller(0)
	require.True(t, ok)
	f, err := os.Open(filepath.Join(filepath.Dir(here), "..", "testdata", name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(into))
}

// Near compares two vectors by the length of their difference over that of want.
func Near(t testing.TB, what string, want, got []float32, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want), what)
	var diff, size float64
	for i := range want {
		d := float64(got[i] - want[i])
		diff, size = diff+d*d, size+float64(want[i])*float64(want[i])
	}
	rel := math.Sqrt(diff / size)
	t.Logf("%s: relative error %.2g", what, rel)
	assert.Less(t, rel, tolerance, what)
}

package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// memory is a Source of bytes in memory.
type memory struct{ *bytes.Reader }

func source(b []byte) memory { return memory{bytes.NewReader(b)} }

func randomF32(n int, seed uint64) ([]float32, []byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	values := make([]float32, n)
	var b []byte
	for i := range values {
		values[i] = float32(r.NormFloat64())
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(values[i]))
	}
	return values, b
}

// Whatever the pieces are that a tensor is filled in, its bytes are those of one
// call for every row of every matrix.
func TestFillInPieces(t *testing.T) {
	tests := []struct {
		to      tensor.DType
		shape   []int64
		weights int // rows of weights
	}{
		{tensor.F16, []int64{3, 5, 7}, 0},
		{tensor.BF16, []int64{11}, 0},
		{tensor.Q8_0, []int64{6, 96}, 0},
		{tensor.Q4_K, []int64{6, 512}, 0},
		{tensor.Q4_K, []int64{6, 512}, 1},
		{tensor.Q4_0, []int64{6, 96}, 1}, // depends on the whole row
		{tensor.IQ4_NL, []int64{3, 4, 64}, 3},
		{tensor.Q5_1, []int64{2, 3, 4, 64}, 6},
		{tensor.Q6_K, []int64{2, 2, 256}, 1},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %v weights %d", tt.to, tt.shape, tt.weights), func(t *testing.T) {
			n, err := tensor.Elements(tt.shape)
			require.NoError(t, err)
			values, stored := randomF32(int(n), 7)
			in := tensor.Tensor{Info: tensor.Info{Name: "x", DType: tensor.F32, Shape: tt.shape}, Source: source(stored)}
			cols := in.Cols()
			var weights []float32
			for i := range int64(tt.weights) * cols {
				weights = append(weights, 0.1+float32(i%13))
			}
			f, err := newFloatFill(in, tt.shape, tt.to, weights, true, &counts{})
			require.NoError(t, err)

			codec := quant.Lookup(tt.to)
			size := n / tt.to.Block() * tt.to.BlockBytes()
			want := make([]byte, size)
			rows := n / cols
			rowBytes := size / rows
			for r := range rows {
				var w []float32
				if tt.weights > 0 {
					m := r / (rows / int64(tt.weights))
					w = weights[m*cols : (m+1)*cols]
				}
				if !tt.to.IsQuantized() {
					_, err = codec.QuantizeExact(want, values, 1, n, nil)
					require.NoError(t, err)
					break
				}
				_, err := codec.QuantizeExact(want[r*rowBytes:(r+1)*rowBytes], values[r*cols:(r+1)*cols], 1, cols, w)
				require.NoError(t, err)
			}

			units := size / f.Unit()
			for _, step := range []int64{1, 2, 3, units} {
				got := make([]byte, size)
				var s writer.Scratch
				for first := int64(0); first < units; first += step {
					k := min(step, units-first)
					require.NoError(t, f.Fill(context.Background(), got[first*f.Unit():(first+k)*f.Unit()], first, k, &s))
				}
				require.Equal(t, want, got, "step %d", step)
			}
		})
	}
}

func TestFillSaysWhereNaNIs(t *testing.T) {
	values, stored := randomF32(4*64, 3)
	binary.LittleEndian.PutUint32(stored[4*(2*64+5):], math.Float32bits(float32(math.NaN())))
	in := tensor.Tensor{Info: tensor.Info{Name: "x", DType: tensor.F32, Shape: []int64{4, 64}}, Source: source(stored)}
	f, err := newFloatFill(in, in.Shape, tensor.Q8_0, nil, false, &counts{})
	require.NoError(t, err)
	var s writer.Scratch
	err = f.Fill(context.Background(), make([]byte, len(values)/32*34), 0, int64(len(values)/32), &s)
	var bad *quant.NonFiniteError
	require.True(t, errors.As(err, &bad))
	require.EqualValues(t, 2, bad.Row)
	require.EqualValues(t, 5, bad.Col)
}

func TestIntegers(t *testing.T) {
	tests := []struct {
		from, to tensor.DType
		in       []byte
		want     []byte // nil: an error
	}{
		{tensor.I64, tensor.I32, []byte{5, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte{5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}},
		{tensor.I64, tensor.I32, []byte{0, 0, 0, 0, 1, 0, 0, 0}, nil},
		{tensor.U8, tensor.I16, []byte{0, 127, 128, 255}, []byte{0, 0, 127, 0, 128, 0, 255, 0}},
		{tensor.Bool, tensor.I8, []byte{0, 1}, []byte{0, 1}},
		{tensor.U32, tensor.I64, []byte{0xff, 0xff, 0xff, 0xff}, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}},
		{tensor.U64, tensor.I64, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.from.String()+" to "+tt.to.String(), func(t *testing.T) {
			f := &intFill{source: source(tt.in), from: tt.from, to: tt.to, cut: new(atomic.Int64)}
			n := int64(len(tt.in)) / tt.from.BlockBytes()
			got := make([]byte, n*tt.to.BlockBytes())
			var s writer.Scratch
			err := f.Fill(context.Background(), got, 0, n, &s)
			if tt.want == nil {
				var bad *RangeError
				require.True(t, errors.As(err, &bad), "%v", err)
				f.truncate = true
				require.NoError(t, f.Fill(context.Background(), got, 0, n, &s))
				require.EqualValues(t, 1, f.cut.Load(), "what lost bits is counted")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestFold(t *testing.T) {
	require.Equal(t, []int64{128, 1, 2, 2}, fold([]int64{8, 16, 1, 2, 2}))
	require.Equal(t, []int64{24, 5, 6, 7}, fold([]int64{2, 3, 4, 5, 6, 7}))
	require.Equal(t, []int64{8, 16}, fold([]int64{8, 16}))
	require.Empty(t, fold(nil))
}

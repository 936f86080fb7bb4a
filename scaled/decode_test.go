package scaled_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/scaled"
	"github.com/sdtool/sdtool/tensor"
)

// mem makes a tensor of bytes in memory.
func mem(name string, d tensor.DType, shape []int64, raw []byte) tensor.Tensor {
	return tensor.Tensor{Info: tensor.Info{Name: name, DType: d, Shape: shape}, Source: bytes.NewReader(raw)}
}

func floats(name string, shape []int64, values ...float32) tensor.Tensor {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return mem(name, tensor.F32, shape, raw)
}

func fill(n int, b byte) []byte { return bytes.Repeat([]byte{b}, n) }

// values reads a decoded tensor through ReadFloats.
func values(t *testing.T, x tensor.Tensor) []float32 {
	t.Helper()
	n, err := x.Elements()
	require.NoError(t, err)
	out := make([]float32, n)
	src, ok := x.Source.(tensor.FloatSource)
	require.True(t, ok, "%s was not decoded", x.Name)
	require.NoError(t, src.ReadFloats(out, 0))
	return out
}

func names(ts []tensor.Tensor) []string {
	var out []string
	for _, x := range ts {
		out = append(out, x.Name)
	}
	return out
}

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func openCases(t *testing.T) (in, want *safetensors.File) {
	t.Helper()
	var files [2]*safetensors.File
	for i, name := range []string{"cases", "expected"} {
		f, err := safetensors.Open(filepath.Join("testdata", name+".safetensors"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		files[i] = f
	}
	return files[0], files[1]
}

// The reference is testdata/make_cases.py: torch and numpy over whole tensors.
func TestDecodeEqualsTorch(t *testing.T) {
	in, want := openCases(t)
	got, report, err := scaled.Decode(in.Tensors, scaled.Options{Metadata: in.Metadata})
	require.NoError(t, err)
	byName := make(map[string]tensor.Tensor)
	for _, x := range got {
		byName[x.Name] = x
	}
	require.Len(t, byName, len(want.Tensors)+1, "the weights, what must survive, and ids: %v", names(got))
	rng := rand.New(rand.NewPCG(1, 2))
	for _, w := range want.Tensors {
		x, ok := byName[w.Name]
		require.True(t, ok, w.Name)
		require.Equal(t, w.Shape, x.Shape, w.Name)
		if !report.Decoded(w.Name) {
			continue // untouched
		}
		raw := make([]byte, w.Source.Size())
		_, err := w.Source.ReadAt(raw, 0)
		require.True(t, err == nil || err == io.EOF)
		expect := make([]float32, len(raw)/4)
		for i := range expect {
			expect[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		for i, v := range values(t, x) {
			if !same(v, expect[i]) {
				t.Fatalf("%s[%d]: got %g, want %g", w.Name, i, v, expect[i])
			}
		}
		for range 20 { // any run of elements, and any run of bytes
			if len(expect) == 0 {
				break
			}
			first := rng.IntN(len(expect))
			part := make([]float32, rng.IntN(len(expect)-first+1))
			require.NoError(t, x.Source.(tensor.FloatSource).ReadFloats(part, int64(first)))
			require.True(t, slices.EqualFunc(part, expect[first:first+len(part)], same), "%s from %d", w.Name, first)
			at := rng.IntN(len(raw))
			p := make([]byte, rng.IntN(len(raw)-at+1))
			n, err := x.Source.ReadAt(p, int64(at))
			require.NoError(t, err)
			require.Equal(t, len(p), n)
			if !bytes.Contains([]byte(w.Name), []byte("all_")) && !bytes.Contains([]byte(w.Name), []byte("nan")) {
				require.Equal(t, raw[at:at+n], p, "%s bytes from %d", w.Name, at)
			}
		}
	}
	require.Equal(t, map[scaled.Scheme]int{scaled.FP8: 24, scaled.FP8Block: 4, scaled.INT8: 1, scaled.INT8Rot: 2, scaled.MXFP8: 4, scaled.NVFP4: 4}, report.Schemes())
	require.Contains(t, report.Dropped, "scaled_fp8")
	require.Contains(t, report.Dropped, "vector.input_scale")
	require.Equal(t, []string{"stray.foo_scale"}, report.Kept)
}

func TestPresent(t *testing.T) {
	in, _ := openCases(t)
	require.True(t, scaled.Present(in.Tensors, scaled.Options{}))
	require.False(t, scaled.Present([]tensor.Tensor{
		mem("a.weight", tensor.F8E4M3, []int64{2}, fill(2, 0x38)),
		floats("norm.scale", []int64{1}, 3),
	}, scaled.Options{}))
}

func TestFault024ScaleIsMultipliedInEitherSpelling(t *testing.T) {
	weight := mem("a.weight", tensor.F8E4M3, []int64{2, 32}, fill(64, 0x38))
	for _, spelling := range []string{"a.weight_scale", "a.scale_weight"} {
		got, _, err := scaled.Decode([]tensor.Tensor{weight, floats(spelling, nil, 0.002)}, scaled.Options{})
		require.NoError(t, err)
		require.Equal(t, []string{"a.weight"}, names(got))
		for _, v := range values(t, got[0]) {
			require.Equal(t, float32(0.002), v)
		}
	}
	_, _, err := scaled.Decode([]tensor.Tensor{weight, floats("a.weight_scale", nil, 0.002), floats("a.scale_weight", nil, 0.003)}, scaled.Options{})
	var scheme *scaled.SchemeError
	require.ErrorAs(t, err, &scheme)
	require.Equal(t, "a.weight", scheme.Tensor)
	require.ErrorContains(t, err, "differ")
}

func TestFault025OneElementScalesOfAnyRank(t *testing.T) {
	for _, shape := range [][]int64{{}, {1}, {1, 1}} {
		got, _, err := scaled.Decode([]tensor.Tensor{
			mem("a.weight", tensor.F8E4M3, []int64{2, 3}, []byte{0x38, 0x40, 0xB8, 0, 0x30, 0x7E}), floats("a.weight_scale", shape, 2),
		}, scaled.Options{})
		require.NoError(t, err)
		require.Equal(t, []float32{2, 4, -2, 0, 1, 896}, values(t, got[0]), "%v", shape)
	}
}

func TestFault026ScalePerRow(t *testing.T) {
	for _, shape := range [][]int64{{3}, {3, 1}} {
		got, _, err := scaled.Decode([]tensor.Tensor{
			mem("a.weight", tensor.F8E4M3, []int64{3, 32}, fill(96, 0x38)), floats("a.weight_scale", shape, 1, 2, 3),
		}, scaled.Options{})
		require.NoError(t, err)
		for i, v := range values(t, got[0]) {
			require.Equal(t, float32(1+i/32), v)
		}
	}
}

func TestFault028HintsGoStrayScalesStay(t *testing.T) {
	got, report, err := scaled.Decode([]tensor.Tensor{
		mem("a.weight", tensor.F8E4M3, []int64{1, 4}, fill(4, 0x38)),
		floats("a.input_scale", nil, 7), floats("a.weight_scale", nil, 1), floats("foo_scale", nil, 5), floats("b.input_scale", nil, 7),
	}, scaled.Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"a.weight", "foo_scale", "b.input_scale"}, names(got))
	require.Equal(t, []string{"a.input_scale"}, report.Dropped)
	require.Equal(t, []string{"foo_scale", "b.input_scale"}, report.Kept)
	require.Equal(t, []string{"a.weight_scale"}, report.Weights[0].Scales)
}

func TestFault029EmptyMarkerGoesOtherEmptyTensorsStay(t *testing.T) {
	got, report, err := scaled.Decode([]tensor.Tensor{
		mem("scaled_fp8", tensor.F8E4M3, []int64{0}, nil), mem("e", tensor.F32, []int64{0, 4}, nil),
	}, scaled.Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"e"}, names(got))
	require.Equal(t, []string{"scaled_fp8"}, report.Dropped)
}

func TestMetadataNamesTheScheme(t *testing.T) {
	meta := map[string]string{"_quantization_metadata": `{"format_version":"1.0","layers":{"blk.a":{"format":"float8_e4m3fn"}}}`}
	got, report, err := scaled.Decode([]tensor.Tensor{
		mem("blk.a.weight", tensor.U8, []int64{1, 4}, []byte{0x38, 0x40, 0x44, 0xB8}), floats("blk.a.weight_scale", nil, 0.5),
	}, scaled.Options{Metadata: meta})
	require.NoError(t, err)
	require.Equal(t, []float32{0.5, 1, 1.5, -0.5}, values(t, got[0]))
	require.Equal(t, scaled.FP8, report.Weights[0].Scheme)

	_, _, err = scaled.Decode(nil, scaled.Options{Metadata: map[string]string{"_quantization_metadata": "{"}})
	require.ErrorContains(t, err, "_quantization_metadata")
}

func TestSchemesThatAreRefused(t *testing.T) {
	w := func(d tensor.DType, shape ...int64) tensor.Tensor {
		n, _ := tensor.Elements(shape)
		return mem("a.weight", d, shape, fill(int(n), 0x38))
	}
	say := func(json string) tensor.Tensor {
		return mem("a.comfy_quant", tensor.U8, []int64{int64(len(json))}, []byte(json))
	}
	one := floats("a.weight_scale", nil, 1)
	tests := map[string]struct {
		in   []tensor.Tensor
		want string
	}{
		"scale shape":      {[]tensor.Tensor{w(tensor.F8E4M3, 3, 4), floats("a.weight_scale", []int64{5}, 1, 2, 3, 4, 5)}, "[3,4]"},
		"scale of ints":    {[]tensor.Tensor{w(tensor.F8E4M3, 3, 4), mem("a.weight_scale", tensor.I32, []int64{1}, fill(4, 1))}, "want a float type"},
		"two kinds":        {[]tensor.Tensor{w(tensor.F8E4M3, 3, 4), one, floats("a.weight_scale_inv", nil, 1)}, "more than one kind"},
		"packed, no more":  {[]tensor.Tensor{w(tensor.U8, 3, 4), one}, "no scheme that sdtool knows"},
		"tiles":            {[]tensor.Tensor{w(tensor.F8E4M3, 64, 64), floats("a.weight_scale_inv", []int64{3, 3}, 1, 1, 1, 1, 1, 1, 1, 1, 1)}, "tiles of one size"},
		"unknown format":   {[]tensor.Tensor{w(tensor.I8, 3, 4), one, say(`{"format":"int3_magic"}`)}, `"int3_magic"`},
		"not json":         {[]tensor.Tensor{w(tensor.I8, 3, 4), one, say(`{"format"`)}, "not JSON"},
		"format, no scale": {[]tensor.Tensor{w(tensor.I8, 3, 4), say(`{"format":"int8_tensorwise"}`)}, "without a.weight_scale"},
		"format, floats":   {[]tensor.Tensor{mem("a.weight", tensor.F16, []int64{2}, fill(4, 0)), one, say(`{"format":"mxfp8"}`)}, "dtype f16"},
		"format, wrong":    {[]tensor.Tensor{w(tensor.I8, 3, 4), one, say(`{"format":"float8_e4m3fn"}`)}, "want f8_e4m3"},
		"rotation group":   {[]tensor.Tensor{w(tensor.I8, 3, 64), one, say(`{"format":"int8_tensorwise","convrot":true,"convrot_groupsize":32}`)}, "power of 4"},
		"rotation columns": {[]tensor.Tensor{w(tensor.I8, 3, 72), one, say(`{"format":"int8_tensorwise","convrot":true,"convrot_groupsize":16}`)}, "divides the 72 columns"},
		"nvfp4 alone":      {[]tensor.Tensor{w(tensor.U8, 3, 16), floats("a.weight_scale_2", nil, 1)}, "wants both"},
		"nvfp4 scales":     {[]tensor.Tensor{w(tensor.U8, 3, 16), floats("a.weight_scale_2", nil, 1), mem("a.weight_scale", tensor.F8E4M3, []int64{3, 3}, fill(9, 0x38))}, "want [3,2]"},
		"mxfp8 rows":       {[]tensor.Tensor{w(tensor.F8E4M3, 3, 40), mem("a.weight_scale", tensor.F8E8M0, []int64{3, 2}, fill(6, 127))}, "blocks of 32"},
		"bitsandbytes":     {[]tensor.Tensor{w(tensor.U8, 3, 4), floats("a.weight.absmax", nil, 1)}, "bitsandbytes"},
		"gptq":             {[]tensor.Tensor{mem("a.qweight", tensor.I32, []int64{1}, fill(4, 1))}, "GPTQ"},
		"svdquant":         {[]tensor.Tensor{w(tensor.I8, 3, 4), floats("a.wscales", nil, 1)}, "SVDQuant"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := scaled.Decode(tt.in, scaled.Options{})
			var scheme *scaled.SchemeError
			require.ErrorAs(t, err, &scheme)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, scheme.Tensor)
		})
	}
}

func TestReadOutOfRangeAndCutSource(t *testing.T) {
	got, _, err := scaled.Decode([]tensor.Tensor{
		mem("a.weight", tensor.F8E4M3, []int64{2, 4}, fill(5, 0x38)), floats("a.weight_scale", nil, 1),
	}, scaled.Options{})
	require.NoError(t, err)
	src := got[0].Source.(tensor.FloatSource)
	require.Error(t, src.ReadFloats(make([]float32, 4), 6))
	require.Error(t, src.ReadFloats(make([]float32, 1), -1))
	require.ErrorIs(t, src.ReadFloats(make([]float32, 8), 0), io.ErrUnexpectedEOF)
	_, err = src.ReadAt(make([]byte, 4), 33)
	require.Error(t, err)
}

// Whatever a file says of a layer, decoding it neither panics nor reads out of range.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"format":"int8_tensorwise","convrot":true,"convrot_groupsize":16}`), byte(3), uint16(64), uint16(3), byte(0))
	f.Add([]byte(`{"format":"nvfp4"}`), byte(1), uint16(4), uint16(4), byte(1))
	f.Add([]byte(``), byte(0), uint16(200), uint16(2), byte(2))
	kinds := []tensor.DType{tensor.F8E4M3, tensor.U8, tensor.F8E5M2, tensor.I8, tensor.F32}
	spellings := []string{"weight_scale", "scale_weight", "weight_scale_inv", "scale"}
	f.Fuzz(func(t *testing.T, config []byte, kind byte, cols, scaleCols uint16, spelling byte) {
		d := kinds[int(kind)%len(kinds)]
		shape := []int64{3, int64(cols % 512)}
		in := []tensor.Tensor{mem("a.weight", d, shape, fill(int(3*shape[1]*d.BlockBytes()), 0x38))}
		scale := []int64{3, int64(scaleCols % 64)}
		sd := kinds[int(kind/8)%len(kinds)]
		in = append(in, mem("a."+spellings[int(spelling)%4], sd, scale, fill(int(3*scale[1]*sd.BlockBytes()), 1)))
		if len(config) > 0 {
			in = append(in, mem("a.comfy_quant", tensor.U8, []int64{int64(len(config))}, config))
		}
		if spelling > 127 {
			in = append(in, floats("a.weight_scale_2", nil, 1))
		}
		out, _, err := scaled.Decode(in, scaled.Options{})
		if err != nil {
			return
		}
		if src, ok := out[0].Source.(tensor.FloatSource); ok {
			n, err := out[0].Elements()
			require.NoError(t, err)
			require.NoError(t, src.ReadFloats(make([]float32, n), 0))
		}
	})
}

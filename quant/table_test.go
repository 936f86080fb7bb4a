package quant_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// A type added to tensor needs a row in the table, or a line here that says why not.
func TestEveryTypeHasItsRow(t *testing.T) {
	without := map[tensor.DType]string{
		tensor.C64:    "complex numbers have no float32",
		tensor.F6E2M3: "no checkpoint uses it",
		tensor.F6E3M2: "no checkpoint uses it",
	}
	onlyDecoded := map[tensor.DType]bool{
		tensor.I8: true, tensor.I16: true, tensor.I32: true, tensor.I64: true, tensor.Bool: true,
		tensor.U8: true, tensor.U16: true, tensor.U32: true, tensor.U64: true,
		tensor.F8E8M0: true, tensor.F4E2M1: true, tensor.Q8_1: true, tensor.Q8_K: true,
	}
	for _, d := range tensor.All() {
		c := quant.Lookup(d)
		require.Equal(t, d, c.DType)
		_, none := without[d]
		require.Equal(t, !none, c.CanDequantize, d)
		require.Equal(t, !none && !onlyDecoded[d], c.CanQuantize, d)
		require.False(t, c.NeedsWeights && !c.UsesWeights, d)
		require.False(t, c.RowScoped && !c.UsesWeights, d)
	}
	require.False(t, quant.Lookup(tensor.Invalid).CanDequantize)
	require.False(t, quant.Lookup(255).CanQuantize)
}

// What converters do with fp8 sources: every code survives F16 and F32.
func TestF8ThroughF16IsExact(t *testing.T) {
	for _, d := range []tensor.DType{tensor.F8E4M3, tensor.F8E5M2} {
		for c := range 256 {
			v := decode(t, d, []byte{byte(c)})
			half, stats := encode(t, tensor.F16, v, nil)
			require.Zero(t, stats.Overflow)
			back := decode(t, tensor.F16, half)
			if v[0] != v[0] {
				require.True(t, back[0] != back[0])
				continue
			}
			require.Equal(t, math.Float32bits(v[0]), math.Float32bits(back[0]), "%s %02x", d, c)
		}
	}
	scales := decode(t, tensor.F8E8M0, []byte{0, 1, 127, 128, 254, 255})
	require.Equal(t, []float32{0x1p-127, 0x1p-126, 1, 2, 0x1p127}, scales[:5])
	require.True(t, scales[5] != scales[5])
}

func TestFault023PlainTypesKeepTheirValues(t *testing.T) {
	raw := func(v any) []byte {
		var b bytes.Buffer
		require.NoError(t, binary.Write(&b, binary.LittleEndian, v))
		return b.Bytes()
	}
	require.Equal(t, []float32{1.5, -2, float32(1.0 / 3)}, decode(t, tensor.F64, raw([]float64{1.5, -2, 1.0 / 3})))
	require.Equal(t, []float32{1 << 40, -3}, decode(t, tensor.I64, raw([]int64{1 << 40, -3})))
	require.Equal(t, []float32{1 << 63}, decode(t, tensor.U64, raw([]uint64{1 << 63})))
	require.Equal(t, []float32{-7, 7}, decode(t, tensor.I32, raw([]int32{-7, 7})))
	require.Equal(t, []float32{1 << 31}, decode(t, tensor.U32, raw([]uint32{1 << 31})))
	require.Equal(t, []float32{-300}, decode(t, tensor.I16, raw([]int16{-300})))
	require.Equal(t, []float32{65535}, decode(t, tensor.U16, raw([]uint16{65535})))
	require.Equal(t, []float32{-1, 127}, decode(t, tensor.I8, []byte{255, 127}))
	require.Equal(t, []float32{255, 0}, decode(t, tensor.U8, []byte{255, 0}))
	require.Equal(t, []float32{1, 0}, decode(t, tensor.Bool, []byte{1, 0}))
	require.Equal(t, []float32{0.5, -6}, decode(t, tensor.F4E2M1, []byte{0xf1}))
}

func TestQ8IntermediatesDecode(t *testing.T) {
	q81 := make([]byte, 36)
	binary.LittleEndian.PutUint16(q81, 0x3800) // 0.5
	q81[4], q81[35] = 3, 0xff
	out := decode(t, tensor.Q8_1, q81)
	require.Equal(t, [3]float32{1.5, 0, -0.5}, [3]float32{out[0], out[1], out[31]})
	q8k := make([]byte, 292)
	binary.LittleEndian.PutUint32(q8k, math.Float32bits(0.25))
	q8k[4], q8k[259] = 2, 0x80
	out = decode(t, tensor.Q8_K, q8k)
	require.Equal(t, [3]float32{0.5, 0, -32}, [3]float32{out[0], out[1], out[255]})
}

// ggml asserts in these cases; a library must not.
func TestHugeNumbersAreRefusedWhereGGMLAborts(t *testing.T) {
	src := make([]float32, 256)
	rng := rand.New(rand.NewPCG(2, 2))
	each(src, func(int) float64 { return 1e30 * rng.NormFloat64() })
	aborts := 0
	for _, d := range quantized() {
		c := quant.Lookup(d)
		dst := make([]byte, 256/d.Block()*d.BlockBytes())
		if _, err := c.QuantizeExact(dst, src, 1, 256, modes["ones"](nil, 256)); err != nil {
			require.ErrorIs(t, err, quant.ErrAborts, d)
			aborts++
		}
		stats, err := c.Quantize(dst, src, 1, 256, modes["ones"](nil, 256))
		require.NoError(t, err)
		if d != tensor.BF16 && d != tensor.MXFP4 {
			require.Positive(t, stats.Overflow, d)
		}
	}
	require.Positive(t, aborts)
}

// Tables are made once, whoever asks first, and blocks cost no memory.
func TestTablesAndMemory(t *testing.T) {
	src := make([]float32, 4096)
	inputs["normal"](rand.New(rand.NewPCG(1, 2)), src)
	w := modes["ones"](nil, 4096)
	for _, d := range quantized() {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				dst := make([]byte, 256/d.Block()*d.BlockBytes())
				if _, err := quant.Lookup(d).Quantize(dst, src, 1, 256, w[:256]); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		dst := make([]byte, 4096/d.Block()*d.BlockBytes())
		few := testing.AllocsPerRun(3, func() { _, _ = quant.Lookup(d).Quantize(dst, src, 1, 256, w[:256]) })
		many := testing.AllocsPerRun(3, func() { _, _ = quant.Lookup(d).Quantize(dst, src, 1, 4096, w) })
		// Pools may lose a buffer now and then (always under the race detector);
		// sixteen blocks would show.
		require.LessOrEqual(t, many, few+4, "%s allocates for each block", d)
	}
}

// fused are instructions that round once where ggml rounds twice.
var fused = regexp.MustCompile(`\s(FN?M(ADD|SUB)[SD]|VFN?M(ADD|SUB)\d+[SP][SD])\s`)

// The compiler may fuse a product into a sum on these machines unless the product
// is converted to float32.
func TestNoFusedMultiplyAdd(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package for other machines")
	}
	for _, env := range [][]string{{"GOARCH=arm64"}, {"GOARCH=riscv64"}, {"GOARCH=amd64", "GOAMD64=v3"}} {
		cmd := exec.Command("go", "build", "-gcflags=-S", ".")
		cmd.Env = append(os.Environ(), append(env, "GOOS=linux", "CGO_ENABLED=0")...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.NotEmpty(t, out, env)
		for line := range strings.SplitSeq(string(out), "\n") {
			if fused.MatchString(line) {
				t.Errorf("%v: %s", env, line)
			}
		}
	}
}

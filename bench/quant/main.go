// Command quant measures the quantizers of this module against those of the
// ggml library in the same process, one thread each, and prints a table in
// millions of numbers per second:
//
//	go run ./bench/quant [-cpu avx512] [-types q4_K,q6_K] [-rows 341] [-cols 3072] [-time 300ms]
//
// Before a pair is timed, its bytes are compared.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quant:", err)
		os.Exit(1)
	}
}

// bench is what all measurements share.
type bench struct {
	lib        *native.Library
	out        io.Writer
	rows, cols int64
	least      time.Duration
	src, w     []float32
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("quant", flag.ContinueOnError)
	cpu := flags.String("cpu", os.Getenv("SDTOOL_CPU"), "instruction set: generic, avx2 or avx512; default: the best here")
	types := flags.String("types", "", "types to measure, separated by commas; default: all")
	lib := flags.String("ggml", os.Getenv("SDTOOL_GGML"), "folder of the ggml library")
	rows := flags.Int64("rows", 341, "rows")
	cols := flags.Int64("cols", 3072, "columns, a multiple of 256")
	least := flags.Duration("time", 300*time.Millisecond, "least time to spend on each measurement")
	what := flags.String("only", "", "quantize or dequantize; default: both")
	if err := flags.Parse(args); err != nil {
		return err
	}
	level, err := quant.ParseCPU(*cpu)
	if err != nil {
		return err
	}
	if err := quant.UseCPU(level); err != nil {
		return err
	}
	paths, err := native.Find(append([]string{*lib, "native/ggml"}, native.SystemDirs()...)...)
	if err != nil {
		return err
	}
	b := &bench{out: out, rows: *rows, cols: *cols, least: *least}
	if b.lib, err = native.Open(paths); err != nil {
		return err
	}
	b.fill()
	fmt.Fprintf(out, "instruction set %s, %d rows of %d, normal numbers, one thread, Mel/s\n\n", level, b.rows, b.cols)
	selected := func(d tensor.DType) bool {
		return *types == "" || strings.Contains(","+*types+",", ","+d.String()+",")
	}
	if *what != "dequantize" {
		if err := b.quantizers(selected); err != nil {
			return err
		}
	}
	if *what != "quantize" {
		return b.dequantizers(selected)
	}
	return nil
}

func (b *bench) fill() {
	rng := rand.New(rand.NewPCG(1, 2))
	b.src, b.w = make([]float32, b.rows*b.cols), make([]float32, b.cols)
	for i := range b.src {
		b.src[i] = float32(0.02 * rng.NormFloat64())
	}
	for i := range b.w {
		b.w[i] = 0.01 + float32(rng.ExpFloat64())
	}
}

// rate calls f again and again and returns the best rate of a call.
func (b *bench) rate(n int64, f func() error) (float64, error) {
	best := time.Duration(1<<63 - 1)
	for spent := time.Duration(0); spent < b.least; {
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		d := time.Since(start)
		spent += d
		best = min(best, d)
	}
	return float64(n) / best.Seconds() / 1e6, nil
}

func (b *bench) quantizers(selected func(tensor.DType) bool) error {
	fmt.Fprintln(b.out, "| quantize | weights | ours | ggml | ratio |")
	fmt.Fprintln(b.out, "|---|---|--:|--:|--:|")
	for _, d := range tensor.All() {
		c := quant.Lookup(d)
		if !selected(d) || !c.CanQuantize || !b.lib.CanQuantize(d) || d == tensor.F32 {
			continue
		}
		for _, mode := range []struct {
			name string
			w    []float32
			run  bool
		}{{"none", nil, !c.NeedsWeights}, {"imatrix", b.w, c.UsesWeights}} {
			if !mode.run {
				continue
			}
			if err := b.quantizer(c, mode.name, mode.w); err != nil {
				return fmt.Errorf("%s: %w", d, err)
			}
		}
	}
	fmt.Fprintln(b.out)
	return nil
}

func (b *bench) quantizer(c *quant.Codec, mode string, w []float32) error {
	d := c.DType
	// ggml's slow ones get fewer rows.
	rows := b.rows
	for _, slow := range []string{"iq1", "iq2", "iq3"} {
		if strings.HasPrefix(d.String(), slow) {
			rows = min(rows, 4)
		}
	}
	n := rows * b.cols
	size := n / d.Block() * d.BlockBytes()
	ours, theirs := make([]byte, size), make([]byte, size)
	mine := func() error {
		_, err := c.QuantizeExact(ours, b.src, rows, b.cols, w)
		return err
	}
	other := func() error {
		_, err := b.lib.QuantizeChunk(d, b.src, theirs, rows, b.cols, w)
		return err
	}
	// The first call of each also makes its tables.
	if err := mine(); err != nil {
		return err
	}
	if err := other(); err != nil {
		return err
	}
	if !bytes.Equal(ours, theirs) {
		return fmt.Errorf("weights %s: bytes differ", mode)
	}
	return b.pair(d.String(), mode, n, mine, other)
}

func (b *bench) pair(name, mode string, n int64, mine, other func() error) error {
	fast, err := b.rate(n, mine)
	if err != nil {
		return err
	}
	slow, err := b.rate(n, other)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.out, "| %s | %s | %.2f | %.2f | %.1f |\n", name, mode, fast, slow, fast/slow)
	return err
}

func (b *bench) dequantizers(selected func(tensor.DType) bool) error {
	fmt.Fprintln(b.out, "| dequantize | | ours | ggml | ratio |")
	fmt.Fprintln(b.out, "|---|---|--:|--:|--:|")
	for _, d := range tensor.All() {
		c := quant.Lookup(d)
		if !selected(d) || !c.CanDequantize || !b.lib.CanQuantize(d) || d == tensor.F32 {
			continue
		}
		n := b.rows * b.cols
		raw := make([]byte, n/d.Block()*d.BlockBytes())
		w := b.w
		if !c.UsesWeights {
			w = nil
		}
		if _, err := c.QuantizeExact(raw, b.src, b.rows, b.cols, w); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		ours, theirs := make([]float32, n), make([]float32, n)
		err := b.pair(d.String(), "", n, func() error { return c.Dequantize(ours, raw) }, func() error { return b.lib.ToFloat(d, raw, theirs) })
		if err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		for i := range ours {
			if ours[i] != theirs[i] {
				return fmt.Errorf("%s: element %d is %v, ggml says %v", d, i, ours[i], theirs[i])
			}
		}
	}
	return nil
}

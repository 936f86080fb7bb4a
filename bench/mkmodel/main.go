// Command mkmodel writes a synthetic checkpoint for the benchmarks.
//
//	mkmodel OUT.safetensors [DEPTH [HIDDEN]]
//
// It is FLUX.1 in BF16, cut down to DEPTH (2) double and single blocks of width
// HIDDEN (3072).
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkmodel:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || len(args) > 3 {
		return fmt.Errorf("usage: mkmodel OUT.safetensors [DEPTH [HIDDEN]]")
	}
	sizes := []int{2, 3072}
	for i, arg := range args[1:] {
		n, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		sizes[i] = n
	}
	encode := func(dst []byte, src []float32) error {
		_, err := quant.Lookup(tensor.BF16).Quantize(dst, src, 1, int64(len(src)), nil)
		return err
	}
	return synth.Write(args[0], synth.Flux(sizes[0], int64(sizes[1])), tensor.BF16, encode)
}

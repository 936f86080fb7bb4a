package quant

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/sdtool/sdtool/tensor"
)

// CPU is a set of machine instructions that kernels are written for.
type CPU uint8

// Instruction sets, each with all before it.
const (
	Generic CPU = iota // Go code only
	AVX2               // x86-64 with AVX2, F16C and BMI2
	AVX512             // and AVX-512 F, BW, CD, DQ and VL
	numCPUs
)

var cpuNames = [numCPUs]string{"generic", "avx2", "avx512"}

// String returns the name that ParseCPU takes.
func (c CPU) String() string {
	if c < numCPUs {
		return cpuNames[c]
	}
	return fmt.Sprintf("CPU(%d)", uint8(c))
}

// ParseCPU returns the instruction set with the name generic, avx2 or avx512;
// for "" the best of this machine.
func ParseCPU(name string) (CPU, error) {
	if name == "" {
		return DetectCPU(), nil
	}
	for c, n := range cpuNames {
		if strings.EqualFold(name, n) {
			return CPU(c), nil
		}
	}
	return Generic, fmt.Errorf("unknown instruction set %q: want one of %s", name, strings.Join(cpuNames[:], ", "))
}

// DetectCPU returns the best instruction set that this machine has and this
// build has kernels for.
func DetectCPU() CPU { return machine }

// UseCPU makes every Codec use kernels up to the given instruction set, which
// changes speed and never bytes. The default is that of DetectCPU. Conversions
// that are under way may finish with the old ones.
func UseCPU(c CPU) error {
	if c > machine {
		return fmt.Errorf("instruction set %s: this machine or build has only %s", c, machine)
	}
	cpuInUse.Store(uint32(c))
	return nil
}

// machine is what DetectCPU returns; builds with kernels set it with their hooks.
var machine = Generic

// cpuInUse is the CPU to take kernels of.
var cpuInUse atomic.Uint32

// quantizeKernel converts rows of cols numbers each. It writes what the portable
// function writes with how.exact for each row, which for the types with
// Codec.RowScoped means that it takes the mean square of each row itself.
// weights is as the kernel's place in the table says: nil or cols numbers. rows
// and cols are whatever Quantize was called with, any number of whole blocks.
// src holds finite numbers unless the type is a plain one. Called from many
// goroutines.
type quantizeKernel func(dst []byte, src []float32, rows, cols int, weights []float32)

// kernel replaces a type's portable functions; nil fields leave them in place.
type kernel struct {
	plain    quantizeKernel                  // without weights, or for types that ignore them
	weighted quantizeKernel                  // with weights
	decode   func(dst []float32, src []byte) // whole blocks
	// scan counts the numbers whose size, as float32 bits, is limit or more. It
	// serves all types and is hooked under tensor.Invalid.
	scan func(src []float32, limit uint32) int64
}

// kernels are the hooks, by instruction set and type.
var kernels [numCPUs][]kernel

// hook adds a kernel. Only init functions may call it, and only where the
// machine has the instructions.
func hook(c CPU, d tensor.DType, k kernel) {
	if kernels[c] == nil {
		kernels[c] = make([]kernel, len(tensor.All())+1)
	}
	kernels[c][d] = k
	machine = max(machine, c)
	cpuInUse.Store(uint32(machine))
}

// fastest returns the kernel of a type for the CPU in use; each part that it
// lacks is that of the instruction set below.
func fastest(d tensor.DType) (best kernel) {
	for c := int(cpuInUse.Load()); c > int(Generic); c-- {
		k := kernels[c][d]
		if best.plain == nil {
			best.plain = k.plain
		}
		if best.weighted == nil {
			best.weighted = k.weighted
		}
		if best.decode == nil {
			best.decode = k.decode
		}
		if best.scan == nil {
			best.scan = k.scan
		}
	}
	return best
}

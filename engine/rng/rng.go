package rng

import (
	"fmt"
	"math"
)

// Source yields standard-normal numbers. The state after Seed depends on the seed alone.
type Source interface {
	// Seed restarts the stream.
	Seed(seed uint64)
	// Normal fills dst with one draw of len(dst) values: one tensor of noise is one call.
	Normal(dst []float32)
}

// Kind names a generator.
type Kind uint8

// The generators, in the order other tools list them.
const (
	StdDefault Kind = iota
	CUDA
	CPU
)

var kindNames = [...]string{StdDefault: "std_default", CUDA: "cuda", CPU: "cpu"}

// Kinds lists every generator.
func Kinds() []Kind { return []Kind{StdDefault, CUDA, CPU} }

// String returns the command-line name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("rng(%d)", uint8(k))
}

// ParseKind turns a command-line name into a Kind.
func ParseKind(name string) (Kind, error) {
	for k, n := range kindNames {
		if n == name {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("unknown rng %q: expected std_default, cuda or cpu", name)
}

// New returns a seeded source. An unknown kind gives the CUDA generator.
func New(k Kind, seed uint64) Source {
	var s Source
	switch k {
	case StdDefault:
		s = new(stdDefault)
	case CPU:
		s = new(mt19937)
	default:
		s = new(philox)
	}
	s.Seed(seed)
	return s
}

// The C float functions round a result computed in wider arithmetic; so do these.
func logf(x float32) float32  { return float32(math.Log(float64(x))) }
func sinf(x float32) float32  { return float32(math.Sin(float64(x))) }
func cosf(x float32) float32  { return float32(math.Cos(float64(x))) }
func sqrtf(x float32) float32 { return float32(math.Sqrt(float64(x))) }

package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// Verdict compares one tensor of a finished file with what the conversion makes
// of its input.
type Verdict struct {
	Name    string
	From    tensor.DType // in the input
	Want    tensor.DType // that the conversion gives it
	Got     tensor.DType // in the file; Invalid if it is missing
	Problem string       // "missing", "shape", "type", "not planned"; "" if it can be compared
	Detail  string       // of the problem
	// Errors against the input's numbers; 0 for tensors that are not numbers.
	RMSE      float64 // root of the mean squared error
	Max       float64 // largest absolute error
	RelError  float64 // Euclidean norm of the error over that of the input
	Cosine    float64
	Weighted  float64 // RelError with each column weighed by the importance matrix; 0 without one
	NonFinite bool    // the file has NaN or an infinity where the input has a number
	Shared    int64   // NaN and infinities that input and file both have
	// Same: the bytes are those of a new conversion; only set by VerifyOptions.Strict.
	Same bool
}

// Failed reports whether a verdict is bad whatever errors are allowed.
func (v *Verdict) Failed() bool { return v.Problem != "" || v.NonFinite }

// VerifyOptions say what to look at.
type VerifyOptions struct {
	Strict  bool // compare with the bytes of a new conversion
	Threads int
	// Progress, if set, is told the bytes of output compared, from several goroutines.
	Progress func(done int64, name string)
}

// Verify compares a finished file with a planned conversion to one output, tensor by
// tensor, worst first: problems, then by relative error.
func (c *Conversion) Verify(ctx context.Context, cp *Checkpoint, o VerifyOptions) ([]Verdict, error) {
	if len(c.Outputs) != 1 {
		return nil, errors.New("verify: want a conversion to one file")
	}
	out := c.Outputs[0]
	have := make(map[string]tensor.Tensor, len(cp.Tensors))
	for _, t := range cp.Tensors {
		have[t.Name] = t
	}
	verdicts := make([]Verdict, len(out.Tensors))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(threads(o.Threads))
	for i, t := range out.Tensors {
		got, ok := have[t.Name]
		delete(have, t.Name)
		g.Go(func() error {
			v, err := verifyOne(ctx, t, &out.plan.Entries[i], got, ok, o)
			if err != nil {
				return fmt.Errorf("verify tensor %q: %w", t.Name, err)
			}
			verdicts[i] = v
			if o.Progress != nil {
				o.Progress(t.Bytes, t.Name)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, t := range cp.Tensors {
		if _, left := have[t.Name]; left {
			verdicts = append(verdicts, Verdict{Name: t.Name, Got: t.DType, Problem: "not planned", Detail: "the conversion makes no such tensor"})
		}
	}
	slices.SortStableFunc(verdicts, func(a, b Verdict) int {
		switch x, y := a.badness(), b.badness(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return verdicts, nil
}

func threads(n int) int {
	if n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}

func (v *Verdict) badness() float64 {
	if v.Failed() {
		return math.Inf(1)
	}
	return v.RelError
}

func verifyOne(ctx context.Context, t *Tensor, e *writer.Entry, got tensor.Tensor, ok bool, o VerifyOptions) (Verdict, error) {
	v := Verdict{Name: t.Name, From: t.From, Want: t.To, Cosine: 1}
	if !ok {
		v.Problem = "missing"
		return v, nil
	}
	v.Got = got.DType
	if !slices.Equal(significant(got.Shape), significant(t.Shape)) {
		v.Problem, v.Detail = "shape", fmt.Sprintf("found %s, want %s", tensor.ShapeString(got.Shape), tensor.ShapeString(t.Shape))
		return v, nil
	}
	if got.DType != t.To {
		v.Problem, v.Detail = "type", fmt.Sprintf("found %s, want %s", got.DType, t.To)
	}
	if o.Strict && v.Problem == "" {
		var err error
		if v.Same, err = sameBytes(ctx, e, got); err != nil {
			return v, err
		}
	}
	if !isNumbers(t.From) || !isNumbers(got.DType) {
		return v, nil
	}
	return v, v.measure(ctx, t, e, got)
}

// significant is a shape without leading ones, which GGUF does not keep.
func significant(shape []int64) []int64 {
	for len(shape) > 0 && shape[0] == 1 {
		shape = shape[1:]
	}
	return shape
}

// sums are what a comparison adds up.
type sums struct {
	count                       int64
	errors, input, output, both float64 // squares, and products
	wErrors, wInput             float64 // with column weights
	largest                     float64
	shared                      int64 // not finite on both sides
}

// measure fills in the errors.
func (v *Verdict) measure(ctx context.Context, t *Tensor, e *writer.Entry, got tensor.Tensor) error {
	elements, err := got.Elements()
	if err != nil {
		return err
	}
	var s sums
	want, have := make([]float32, pieceElements), make([]float32, pieceElements)
	f, _ := e.Fill.(*floatFill)
	if t.Weights != "imatrix" {
		f = nil // weights of 1 weigh nothing
	}
	for first := int64(0); first < elements; first += pieceElements {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(pieceElements, elements-first)
		if err := readNumbers(t.source, want[:n], first); err != nil {
			return err
		}
		if err := readNumbers(got, have[:n], first); err != nil {
			return err
		}
		for i, a := range want[:n] {
			if err := s.add(a, have[i], f, first+int64(i)); err != nil {
				v.NonFinite = true
			}
		}
	}
	v.finish(&s)
	return nil
}

var errNonFinite = errors.New("not a finite number")

// add compares one number. NaN against NaN, and equal infinities, are no error.
func (s *sums) add(a, b float32, f *floatFill, at int64) error {
	s.count++
	x, y := float64(a), float64(b)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		if x == y || math.IsNaN(x) && math.IsNaN(y) {
			s.shared++
			return nil
		}
		return errNonFinite
	}
	if math.IsNaN(y) || math.IsInf(y, 0) {
		return errNonFinite
	}
	d := y - x
	s.errors += d * d
	s.input += x * x
	s.output += y * y
	s.both += x * y
	s.largest = max(s.largest, math.Abs(d))
	if f != nil && f.weights != nil {
		w := float64(f.row(at)[at%f.cols])
		s.wErrors += w * d * d
		s.wInput += w * x * x
	}
	return nil
}

func (v *Verdict) finish(s *sums) {
	if s.count == 0 {
		return
	}
	v.Shared = s.shared
	v.RMSE, v.Max = math.Sqrt(s.errors/float64(s.count)), s.largest
	v.RelError = ratio(s.errors, s.input)
	v.Weighted = ratio(s.wErrors, s.wInput)
	if s.input > 0 && s.output > 0 {
		v.Cosine = s.both / math.Sqrt(s.input) / math.Sqrt(s.output)
	} else if s.input != s.output {
		v.Cosine = 0
	}
}

// ratio is the root of a over b; without any input, whether there is an error.
func ratio(a, b float64) float64 {
	switch {
	case b > 0:
		return math.Sqrt(a / b)
	case a > 0:
		return 1
	}
	return 0
}

// readNumbers reads the elements from first on, which begins a block.
func readNumbers(t tensor.Tensor, dst []float32, first int64) error {
	if f, ok := t.Source.(tensor.FloatSource); ok && t.DType == tensor.F32 {
		return f.ReadFloats(dst, first)
	}
	codec := quant.Lookup(t.DType)
	size := func(n int64) int64 { return n / t.DType.Block() * t.DType.BlockBytes() }
	raw := make([]byte, size(int64(len(dst))))
	if err := tensor.ReadExact(t.Source, raw, size(first)); err != nil {
		return err
	}
	return codec.Dequantize(dst, raw)
}

// verifyChunk is how much of a new conversion is made at a time, in bytes.
const verifyChunk = 4 << 20

// sameBytes makes the tensor again and compares.
func sameBytes(ctx context.Context, e *writer.Entry, got tensor.Tensor) (bool, error) {
	size, err := e.Bytes()
	if err != nil || size != got.Source.Size() {
		return false, err
	}
	unit := int64(1)
	if e.Fill != nil {
		unit = e.Fill.Unit()
	}
	step := max(verifyChunk/unit, 1)
	var scratch writer.Scratch
	fresh, stored := make([]byte, min(step*unit, size)), make([]byte, min(step*unit, size))
	for first := int64(0); first < size/unit; first += step {
		n := min(step, size/unit-first)
		a, b := fresh[:n*unit], stored[:n*unit]
		if e.Copy != nil {
			err = tensor.ReadExact(e.Copy, a, first)
		} else {
			err = e.Fill.Fill(ctx, a, first, n, &scratch)
		}
		if err == nil {
			err = tensor.ReadExact(got.Source, b, first*unit)
		}
		if err != nil || !bytes.Equal(a, b) {
			return false, err
		}
	}
	return true, nil
}

package convert

import (
	"errors"
	"fmt"

	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// Coverage says how far an importance matrix served the quantized tensors.
type Coverage struct {
	Files   []string
	Entries int      // in all files together
	Total   int      // tensors whose type uses weights
	Covered int      // of them, those with an entry
	Missing []string // names of the others
	Partial []string // tensors with experts that saw no activation, which get weight 1
}

// ErrNoMatch is wrapped when no entry of the importance matrix belongs to any
// quantized tensor.
var ErrNoMatch = errors.New("the importance matrix fits none of the quantized tensors")

// weightIndex finds column weights.
type weightIndex struct {
	paths []string
	files []*imatrix.File
	index *imatrix.Index // nil without a matrix
	ones  map[int64][]float32
	needs []string // tensors whose type cannot do without and that have no entry
	types []tensor.DType
	held  int64 // bytes of weights in memory until the conversion is written
}

// Bounds for weights held in memory: below freeWeights they are not charged to
// the budget, and what is left of it must be at least leastBudget.
const (
	freeWeights = 16 << 20
	leastBudget = 16 << 20
)

// budget returns what is left of a memory budget beside the weights. A model of
// many experts can have hundreds of MiB of them.
func (w *weightIndex) budget(total int64) (int64, error) {
	if w.held <= freeWeights {
		return total, nil
	}
	left := total - w.held
	if left < leastBudget {
		return 0, fmt.Errorf("the weights of the importance matrix take %s of memory, the budget is %s: raise it (--max-memory) to at least %s",
			writer.FormatSize(w.held), writer.FormatSize(total), writer.FormatSize(w.held+leastBudget))
	}
	return left, nil
}

func (w *weightIndex) close() error {
	var errs []error
	for _, f := range w.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (c *Conversion) openWeights(o *Options) error {
	w := &weightIndex{paths: o.Imatrix.Paths, ones: make(map[int64][]float32)}
	c.weights = w
	if len(w.paths) == 0 {
		return nil
	}
	var sets []imatrix.Set
	for _, path := range w.paths {
		f, err := imatrix.Open(path)
		if err != nil {
			return err
		}
		w.files = append(w.files, f)
		sets = append(sets, f)
	}
	set := sets[0]
	if len(sets) > 1 {
		var opts []imatrix.MergeOption
		if o.Policy.Compat {
			opts = append(opts, imatrix.Float32Sums())
		}
		var err error
		if set, err = imatrix.Merge(sets, opts...); err != nil {
			return err
		}
	}
	w.index = imatrix.NewIndex(set)
	c.Coverage = &Coverage{Files: w.paths, Entries: w.index.Len()}
	return nil
}

// columnWeights returns what to give the quantizer for a tensor of the given
// shape, and says so in t.
func (c *Conversion) columnWeights(it *item, t *Tensor, shape []int64, o *Options) ([]float32, error) {
	codec := quant.Lookup(t.To)
	if !codec.UsesWeights {
		return nil, nil
	}
	info := tensor.Info{Shape: shape}
	cols := info.Cols()
	entry, err := c.findEntry(it)
	if err != nil {
		return nil, err
	}
	if c.Coverage != nil {
		c.Coverage.Total++
	}
	if entry != nil {
		t.Weights = "imatrix"
		c.Coverage.Covered++
		if entry.Unseen() > 0 {
			c.Coverage.Partial = append(c.Coverage.Partial, it.Name)
		}
		var weights []float32
		if o.Policy.Compat {
			weights = entry.WeightsCompat(cols)
		} else if weights, err = entry.Weights(matrices(shape), cols); err != nil {
			return nil, fmt.Errorf("tensor %q: importance matrix: %w", it.Name, err)
		}
		c.weights.held += 4 * int64(len(weights))
		return weights, nil
	}
	if c.Coverage != nil {
		c.Coverage.Missing = append(c.Coverage.Missing, it.Name)
	}
	if codec.NeedsWeights && !o.Policy.Compat && !o.Imatrix.AllowMissing {
		c.weights.needs = append(c.weights.needs, it.Name)
		c.weights.types = append(c.weights.types, t.To)
	}
	if o.Imatrix.NoWeights && !codec.NeedsWeights {
		t.Weights = "none"
		return nil, nil
	}
	t.Weights = "ones"
	return c.weights.allOnes(cols), nil
}

func (w *weightIndex) allOnes(n int64) []float32 {
	ones, ok := w.ones[n]
	if !ok {
		ones = make([]float32, n)
		for i := range ones {
			ones[i] = 1
		}
		w.ones[n] = ones
	}
	return ones
}

// matrices is the number of matrices of a tensor: the product of its axes
// before the last two.
func matrices(shape []int64) int64 {
	n := int64(1)
	for _, axis := range shape[:max(len(shape)-2, 0)] {
		n *= axis
	}
	return n
}

// findEntry looks a tensor up by its final name, by the names of what it was
// made of, and by the names that stable-diffusion.cpp has for either.
func (c *Conversion) findEntry(it *item) (*imatrix.Entry, error) {
	if c.weights.index == nil {
		return nil, nil
	}
	names := append([]string{it.Name}, it.parts...)
	names = append(names, it.inputs...)
	names = append(names, c.canonical(names)...)
	return c.weights.index.Find(names...)
}

// finishWeights refuses what must not go on without an importance matrix.
func (c *Conversion) finishWeights(o *Options) error {
	w := c.weights
	if n := len(w.needs); n > 0 {
		return fmt.Errorf("type %s %w: %d tensors have none, among them %s; give one with --imatrix, or --allow-no-imatrix to go on with a much worse result", w.types[0], quant.ErrNeedsWeights, n, List(w.needs))
	}
	if c.Coverage == nil {
		return nil
	}
	if o.Imatrix.Require && len(c.Coverage.Missing) > 0 {
		return fmt.Errorf("%d of %d quantized tensors are not in the importance matrix (--require-imatrix): %s", len(c.Coverage.Missing), c.Coverage.Total, List(c.Coverage.Missing))
	}
	if c.Coverage.Total > 0 && c.Coverage.Covered == 0 && !o.Imatrix.AllowNoMatch && !o.Policy.Compat {
		return fmt.Errorf("%w: its %d entries have other names than %s (--allow-no-match goes on without it)", ErrNoMatch, c.Coverage.Entries, List(c.Coverage.Missing))
	}
	return nil
}

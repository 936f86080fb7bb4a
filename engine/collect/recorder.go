package collect

import (
	"fmt"
	"regexp"
	"strings"
	"unsafe"

	"github.com/sdtool/sdtool/engine"
	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/tensor"
)

// prefixes are those of the weights that stable-diffusion.cpp collects for.
var prefixes = []string{"model.", "cond_stage_model.", "text_encoders."}

// Filter chooses weights by name.
type Filter struct {
	Include, Exclude []*regexp.Regexp // searched for; no Include means all, Exclude wins
}

// Match reports whether statistics of a weight are wanted.
func (f Filter) Match(name string) bool {
	known := false
	for _, p := range prefixes {
		known = known || strings.HasPrefix(name, p)
	}
	any := func(list []*regexp.Regexp) bool {
		for _, re := range list {
			if re.MatchString(name) {
				return true
			}
		}
		return false
	}
	return known && (len(f.Include) == 0 || any(f.Include)) && !any(f.Exclude)
}

// NonFiniteError tells that a weight was about to be fed NaN or an infinity.
type NonFiniteError struct {
	Weight string
	Values int64 // how many in this product
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("the input of %q has %d values that are not finite", e.Weight, e.Values)
}

// Recorder adds what the products of a model are fed to an accumulator. It
// belongs to one goroutine.
type Recorder struct {
	lib    *native.Library
	acc    *imatrix.Accumulator
	filter Filter
	repeat int // times each product counts; see SetWeight
	bytes  []byte
	floats []float32
}

// NewRecorder returns a recorder for one library's models.
func NewRecorder(lib *native.Library, acc *imatrix.Accumulator, f Filter) *Recorder {
	return &Recorder{lib: lib, acc: acc, filter: f, repeat: 1}
}

// Attach makes the recorder see a model's products; Detach ends that.
func (r *Recorder) Attach(m *engine.Model) { m.Watch(r.filter.Match, r.Record) }

// Detach makes a model run unwatched again.
func (r *Recorder) Detach(m *engine.Model) { m.Watch(nil, nil) }

// SetWeight makes what follows count n times; 0 leaves it out.
func (r *Recorder) SetWeight(n int) { r.repeat = n }

// Record adds one product.
func (r *Recorder) Record(p engine.Product) error {
	x, err := r.read(p.Input)
	if err != nil {
		return fmt.Errorf("activations of %q: %w", p.Name, err)
	}
	for range r.repeat {
		if p.IDs.IsZero() {
			err = r.dense(p, x)
		} else {
			err = r.chosen(p, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// activations are f32 values with ggml's axes and strides counted in values.
type activations struct {
	data   []float32
	ne, nb [4]int64
}

// rows returns the rows of one innermost matrix.
func (a activations) rows(first, count, i2, i3 int64) imatrix.Rows {
	start := first*a.nb[1] + i2*a.nb[2] + i3*a.nb[3]
	return imatrix.Rows{Data: a.data[start:], Count: int(count), Cols: int(a.ne[0]), Stride: int(a.nb[1])}
}

// read brings activations to float32 in host memory, which on the CPU means
// looking at them where they are.
func (r *Recorder) read(t native.Tensor) (activations, error) {
	raw := r.lib.Memory(t)
	if raw == nil {
		n := t.Bytes()
		if int64(cap(r.bytes)) < n {
			r.bytes = make([]byte, n)
		}
		raw = r.bytes[:n]
		if err := r.lib.Get(t, raw, 0); err != nil {
			return activations{}, err
		}
	}
	d := t.DType()
	nb := t.NB()
	if nb[0] != d.BlockBytes() {
		return activations{}, fmt.Errorf("%s with strides %v: values of a row are apart", t, nb)
	}
	a := activations{ne: t.NE()}
	for i := 1; i < 4; i++ {
		if nb[i]%d.BlockBytes() != 0 {
			return activations{}, fmt.Errorf("%s with strides %v: not whole values", t, nb)
		}
		a.nb[i] = nb[i] / d.BlockBytes() * d.Block()
	}
	a.nb[0] = 1
	if d == tensor.F32 {
		a.data = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(raw))), len(raw)/4)
		return a, nil
	}
	n := int64(len(raw)) / d.BlockBytes() * d.Block()
	if int64(cap(r.floats)) < n {
		r.floats = make([]float32, n)
	}
	a.data = r.floats[:n]
	return a, r.lib.ToFloat(d, raw, a.data)
}

// dense adds a product by one matrix, or by one matrix for each index of the
// outer axes; all axes of the activations count.
func (r *Recorder) dense(p engine.Product, a activations) error {
	if err := r.acc.Call(p.Name, 1, int(a.ne[0])); err != nil {
		return err
	}
	for i3 := range a.ne[3] {
		for i2 := range a.ne[2] {
			if err := r.add(p.Name, 1, 0, a.rows(0, a.ne[1], i2, i3)); err != nil {
				return err
			}
		}
	}
	return nil
}

// chosen adds a product by chosen matrices: row idx of token t met matrix
// ids[t][idx], and takes its activations from row idx mod ne1.
func (r *Recorder) chosen(p engine.Product, a activations) error {
	experts := p.Weight.NE()[2]
	ids, err := r.ids(p.IDs)
	if err != nil {
		return fmt.Errorf("chosen matrices of %q: %w", p.Name, err)
	}
	if err := r.acc.Call(p.Name, int(experts), int(a.ne[0])); err != nil {
		return err
	}
	for t, row := range ids {
		for idx, expert := range row {
			if expert < 0 || int64(expert) >= experts {
				return fmt.Errorf("chosen matrices of %q: %d of %d", p.Name, expert, experts)
			}
			rows := a.rows(int64(idx)%a.ne[1], 1, int64(t), 0)
			if err := r.add(p.Name, int(experts), int(expert), rows); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Recorder) add(name string, matrices, m int, rows imatrix.Rows) error {
	bad, err := r.acc.Add(name, matrices, m, rows)
	if err == nil && bad > 0 {
		err = &NonFiniteError{Weight: name, Values: bad}
	}
	return err
}

// ids reads which matrix each row chose; they need not be contiguous.
func (r *Recorder) ids(t native.Tensor) ([][]int32, error) {
	raw := make([]byte, t.Bytes())
	if err := r.lib.Get(t, raw, 0); err != nil {
		return nil, err
	}
	ne, nb := t.NE(), t.NB()
	out := make([][]int32, ne[1])
	for i := range out {
		out[i] = make([]int32, ne[0])
		for j := range out[i] {
			out[i][j] = *(*int32)(unsafe.Pointer(&raw[int64(i)*nb[1]+int64(j)*nb[0]]))
		}
	}
	return out, nil
}

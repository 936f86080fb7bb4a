package scaled

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// Options says what is known besides the tensors.
type Options struct {
	// Metadata is the file's string metadata; _quantization_metadata is looked up in it.
	Metadata map[string]string
}

// Weight tells how one weight was decoded.
type Weight struct {
	Name   string
	Scheme Scheme
	From   tensor.DType // as stored
	Scales []string     // companions that were used up
}

// Report tells what Decode did.
type Report struct {
	Weights []Weight
	Dropped []string // companions without a number in them: activation hints, markers, configurations
	Kept    []string // names that look like scales of something but stand alone
}

// Decoded reports whether the named tensor was decoded.
func (r *Report) Decoded(name string) bool {
	return slices.ContainsFunc(r.Weights, func(w Weight) bool { return w.Name == name })
}

// Empty reports whether nothing was decoded or dropped.
func (r *Report) Empty() bool { return len(r.Weights) == 0 && len(r.Dropped) == 0 }

// Schemes counts the decoded weights by scheme.
func (r *Report) Schemes() map[Scheme]int {
	n := make(map[Scheme]int)
	for _, w := range r.Weights {
		n[w.Scheme]++
	}
	return n
}

// Present reports whether the tensors hold anything that Decode would change.
func Present(tensors []tensor.Tensor, o Options) bool {
	_, report, err := Decode(tensors, o)
	return err != nil || !report.Empty()
}

// Decode returns the tensors with scaled weights as plain F32 and their
// companions gone, in the same order. An error is a *SchemeError or comes from
// reading a configuration.
func Decode(tensors []tensor.Tensor, o Options) ([]tensor.Tensor, *Report, error) {
	d, err := newDecoder(tensors, o)
	if err != nil {
		return nil, nil, err
	}
	return d.run()
}

// decoder holds one component while its weights are matched with companions.
type decoder struct {
	tensors []tensor.Tensor
	index   map[string]int
	layers  map[string]*config // from the file's metadata
	used    map[string]bool    // companions to drop
	report  Report
}

func newDecoder(tensors []tensor.Tensor, o Options) (*decoder, error) {
	d := &decoder{tensors: tensors, index: make(map[string]int, len(tensors)), used: make(map[string]bool)}
	for i, t := range tensors {
		d.index[t.Name] = i
	}
	if text, ok := o.Metadata[metaKey]; ok {
		var err error
		if d.layers, err = readMetadata(text); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *decoder) get(name string) *tensor.Tensor {
	if i, ok := d.index[name]; ok {
		return &d.tensors[i]
	}
	return nil
}

func (d *decoder) run() ([]tensor.Tensor, *Report, error) {
	decoded := make(map[string]tensor.Tensor)
	for _, t := range d.tensors {
		if scheme := foreignScheme(t.Name); scheme != "" {
			return nil, nil, &SchemeError{t.Name, fmt.Sprintf("found weights in the form of %s, which sdtool does not read", scheme)}
		}
		base, ok := strings.CutSuffix(t.Name, endWeight)
		if !ok {
			continue
		}
		out, err := d.weight(t, base)
		if err != nil {
			return nil, nil, err
		}
		if out != nil {
			decoded[t.Name] = *out
		}
	}
	d.dropMarkers()
	out := make([]tensor.Tensor, 0, len(d.tensors))
	for _, t := range d.tensors {
		switch w, ok := decoded[t.Name]; {
		case ok:
			out = append(out, w)
		case !d.used[t.Name]:
			if looksLikeScale(t.Name) {
				d.report.Kept = append(d.report.Kept, t.Name)
			}
			out = append(out, t)
		}
	}
	return out, &d.report, nil
}

// dropMarkers drops the tensors that only announce a scheme.
func (d *decoder) dropMarkers() {
	for _, t := range d.tensors {
		base, isMarker := strings.CutSuffix(t.Name, marker)
		if isMarker && (base == "" || strings.HasSuffix(base, ".")) {
			if n, err := t.Elements(); err == nil && n <= 2 {
				d.drop(t.Name)
			}
		}
		if base, ok := strings.CutSuffix(t.Name, endComfy); ok && !d.used[t.Name] && t.DType == tensor.U8 && d.get(base+endWeight) != nil {
			d.drop(t.Name)
		}
	}
}

func (d *decoder) drop(name string) {
	d.used[name] = true
	d.report.Dropped = append(d.report.Dropped, name)
}

func looksLikeScale(name string) bool {
	for _, end := range append([]string{"_scale", endScaleOld, endScale2, endScaleInv}, hints...) {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// weight decodes one weight, or returns nil if it is stored as it is.
func (d *decoder) weight(t tensor.Tensor, base string) (*tensor.Tensor, error) {
	c, err := d.config(base)
	if err != nil {
		return nil, err
	}
	small := t.DType == tensor.F8E4M3 || t.DType == tensor.F8E5M2 || t.DType == tensor.I8 || t.DType == tensor.U8 || t.DType == tensor.F4E2M1
	if !small {
		if c != nil && c.Format != "" {
			return nil, &SchemeError{t.Name, fmt.Sprintf("%s says format %q, found a weight of dtype %s", base+endComfy, c.Format, t.DType)}
		}
		return nil, nil
	}
	p, err := d.plan(t, base, c)
	if err != nil || p == nil {
		return nil, err
	}
	w := Weight{Name: t.Name, Scheme: p.scheme, From: t.DType}
	for _, s := range p.companions {
		d.used[s.Name] = true
		w.Scales = append(w.Scales, s.Name)
	}
	d.report.Weights = append(d.report.Weights, w)
	for _, hint := range hints {
		if d.get(base+hint) != nil {
			d.drop(base + hint)
		}
	}
	if c != nil && d.get(base+endComfy) != nil {
		d.drop(base + endComfy)
	}
	return &tensor.Tensor{
		Info:   tensor.Info{Name: t.Name, DType: tensor.F32, Shape: p.shape},
		Source: newSource(p),
	}, nil
}

// config returns what the file says of the layer, or nil.
func (d *decoder) config(base string) (*config, error) {
	if t := d.get(base + endComfy); t != nil {
		return readConfig(*t)
	}
	return d.layers[strings.TrimSuffix(base, ".")], nil
}

// scale returns the scale of a weight under its two usual names.
func (d *decoder) scale(base string) (*tensor.Tensor, []*tensor.Tensor, error) {
	now, old := d.get(base+endScale), d.get(base+endScaleOld)
	switch {
	case now == nil && old == nil:
		return nil, nil, nil
	case old == nil:
		return now, []*tensor.Tensor{now}, nil
	case now == nil:
		return old, []*tensor.Tensor{old}, nil
	}
	same, err := sameValues(now, old)
	if err != nil {
		return nil, nil, err
	}
	if !same {
		return nil, nil, &SchemeError{base + endWeight, fmt.Sprintf("has both %s and %s, and they differ", endScale, endScaleOld)}
	}
	return now, []*tensor.Tensor{now, old}, nil
}

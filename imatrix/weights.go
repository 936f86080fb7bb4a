package imatrix

// Index finds entries of a Set by name.
type Index struct {
	set    Set
	byName map[string]int
}

// NewIndex returns an index of the Set.
func NewIndex(s Set) *Index {
	x := &Index{set: s, byName: make(map[string]int, len(s.Headers()))}
	for i, h := range s.Headers() {
		x.byName[h.Name] = i
	}
	return x
}

// Find reads the entry of the first of the names that the Set has, and returns
// nil if it has none.
func (x *Index) Find(names ...string) (*Entry, error) {
	for _, name := range names {
		if i, ok := x.byName[name]; ok {
			return x.set.Read(i)
		}
	}
	return nil, nil
}

// Len returns the number of entries.
func (x *Index) Len() int { return len(x.byName) }

// Weights returns the column weights for a tensor of the given number of
// matrices (the product of its axes before the last two) and columns, in rows
// of cols: one row shared by all matrices, or one for each.
//
// The numbers are what the tool that wrote the entry would feed its quantizer,
// so that its bytes come out: values of a .dat as they stand (stable-diffusion.cpp),
// sums of a GGUF file divided by their counts (llama-quantize). A matrix that
// saw no row gets weight 1. A width that does not fit is a *WidthError.
func (e *Entry) Weights(matrices, cols int64) ([]float32, error) {
	total := int64(len(e.Sums))
	if total != cols && total != cols*matrices {
		return nil, &WidthError{Entry: e.Name, Got: total, Want: cols, Where: "the importance matrix"}
	}
	out := make([]float32, 0, total)
	for m := range e.Counts {
		if e.Origin == OriginDat {
			out = append(out, e.stored(m)...)
		} else {
			out = append(out, e.Means(m)...)
		}
	}
	return out, nil
}

// WeightsCompat returns one row of cols weights as stable-diffusion.cpp makes
// it: the stored values, cut at cols or padded with 1, whatever the width and
// the number of matrices.
func (e *Entry) WeightsCompat(cols int64) []float32 {
	out := make([]float32, 0, cols)
	for m := 0; m < e.Matrices && int64(len(out)) < cols; m++ {
		out = append(out, e.stored(m)...)
	}
	if int64(len(out)) > cols {
		out = out[:cols]
	}
	for int64(len(out)) < cols {
		out = append(out, 1)
	}
	return out
}

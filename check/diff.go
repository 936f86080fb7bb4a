package check

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sort"

	"golang.org/x/sync/errgroup"

	"github.com/sdtool/sdtool/tensor"
)

// Side is one of two checkpoints.
type Side struct {
	Tensors  []tensor.Tensor
	Metadata map[string]string // each entry printed in full
}

// Change is one difference between two checkpoints.
type Change struct {
	Name string
	Kind string // "only in first", "only in second", "dtype", "shape", "bytes", "metadata"
	Msg  string
}

// Diff lists how b differs from a: tensors by name, then metadata. Bytes are
// only compared where type and shape agree.
func Diff(ctx context.Context, a, b Side, o Options) ([]Change, error) {
	second := make(map[string]tensor.Tensor, len(b.Tensors))
	for _, t := range b.Tensors {
		second[t.Name] = t
	}
	changes := make([]*Change, len(a.Tensors))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.threads())
	for i, t := range a.Tensors {
		other, ok := second[t.Name]
		delete(second, t.Name)
		switch {
		case !ok:
			changes[i] = &Change{t.Name, "only in first", t.DType.String() + tensor.ShapeString(t.Shape)}
		case t.DType != other.DType:
			changes[i] = &Change{t.Name, "dtype", fmt.Sprintf("%s, then %s", t.DType, other.DType)}
		case !slices.Equal(t.Shape, other.Shape):
			changes[i] = &Change{t.Name, "shape", fmt.Sprintf("%s, then %s", tensor.ShapeString(t.Shape), tensor.ShapeString(other.Shape))}
		default:
			g.Go(func() error {
				at, err := firstDifference(ctx, t, other, &o)
				if err != nil {
					return fmt.Errorf("compare tensor %q: %w", t.Name, err)
				}
				if at >= 0 {
					changes[i] = &Change{t.Name, "bytes", fmt.Sprintf("first at byte %d of %d", at, t.Source.Size())}
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []Change
	for _, c := range changes {
		if c != nil {
			out = append(out, *c)
		}
	}
	for _, t := range b.Tensors {
		if _, left := second[t.Name]; left {
			out = append(out, Change{t.Name, "only in second", t.DType.String() + tensor.ShapeString(t.Shape)})
		}
	}
	return append(out, metadataChanges(a.Metadata, b.Metadata)...), nil
}

// firstDifference returns the offset of the first byte that differs, or -1.
func firstDifference(ctx context.Context, a, b tensor.Tensor, o *Options) (int64, error) {
	x, y := buffers.Get().(*[1 << 20]byte), buffers.Get().(*[1 << 20]byte)
	defer buffers.Put(x)
	defer buffers.Put(y)
	ra, rb := io.NewSectionReader(a.Source, 0, a.Source.Size()), io.NewSectionReader(b.Source, 0, b.Source.Size())
	for at := int64(0); at < a.Source.Size(); {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n := min(int64(len(x)), a.Source.Size()-at)
		if _, err := io.ReadFull(ra, x[:n]); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(rb, y[:n]); err != nil {
			return 0, err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			for i := range n {
				if x[i] != y[i] {
					return at + i, nil
				}
			}
		}
		at += n
		if o.Progress != nil {
			o.Progress(n, a.Name)
		}
	}
	return -1, nil
}

func metadataChanges(a, b map[string]string) []Change {
	keys := make(map[string]bool)
	for _, m := range []map[string]string{a, b} {
		for k := range m {
			keys[k] = true
		}
	}
	var out []Change
	for k := range keys {
		x, inA := a[k]
		y, inB := b[k]
		switch {
		case !inB:
			out = append(out, Change{k, "metadata", "only in first: " + short(x)})
		case !inA:
			out = append(out, Change{k, "metadata", "only in second: " + short(y)})
		case x != y:
			out = append(out, Change{k, "metadata", short(x) + ", then " + short(y)})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// shown is how much of a metadata value a message repeats, in bytes.
const shown = 80

func short(s string) string {
	if len(s) <= shown {
		return s
	}
	return s[:shown] + "…"
}

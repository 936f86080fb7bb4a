package graph

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sdtool/sdtool/native"
	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

const (
	// chunkBytes is what a loader reads at a time, its only own memory.
	chunkBytes = 4 << 20
	loaders    = 4
	// bufferBytes is the largest single allocation of weights: smaller ones
	// are easier to place on devices.
	bufferBytes = 1 << 30
)

// Load reads every weight that was asked for into the device's memory.
// progress, if not nil, is told the bytes read so far and in all, from any
// goroutine.
func (w *Weights) Load(ctx context.Context, progress func(done, total int64)) error {
	if w.loaded {
		return fmt.Errorf("weights are already loaded")
	}
	if err := w.mapAll(); err != nil {
		return err
	}
	if err := w.place(); err != nil {
		return err
	}
	var total int64
	for _, x := range w.order {
		total += x.source.Size()
	}
	var done atomic.Int64
	report := func(n int64) {
		if sum := done.Add(n); progress != nil {
			progress(sum, total)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(loaders)
	for _, x := range w.order {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if x.inPlace {
				report(x.source.Size())
				return nil
			}
			if err := w.fill(x, report); err != nil {
				return fmt.Errorf("load tensor %q: %w", x.info.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	w.loaded = true
	w.forgetSources()
	return nil
}

// forgetSources lets the caller close the files; names and shapes stay known.
func (w *Weights) forgetSources() {
	for name, t := range w.sources {
		w.sources[name] = tensor.Tensor{Info: t.Info}
	}
	for _, x := range w.order {
		x.source = nil
	}
}

// place allocates buffers and gives every weight its address.
func (w *Weights) place() error {
	b := w.device.main
	align := b.Alignment()
	type slot struct {
		buffer int
		offset int64
	}
	slots := make([]slot, len(w.order))
	sizes := []int64{0}
	for i, x := range w.order {
		if x.inPlace {
			continue
		}
		size, err := tensor.AlignUp(b.AllocSize(x.t), align)
		if err != nil {
			return err
		}
		last := len(sizes) - 1
		if sizes[last] > 0 && sizes[last]+size > bufferBytes {
			sizes = append(sizes, 0)
			last++
		}
		slots[i] = slot{last, sizes[last]}
		sizes[last] += size
	}
	for _, n := range sizes {
		if n == 0 && len(w.mappings) > 0 {
			continue // all of them lie in their files
		}
		buf, err := b.Alloc(n)
		if err != nil {
			return fmt.Errorf("memory for weights of %d bytes: %w", w.bytes, err)
		}
		w.buffers = append(w.buffers, buf)
	}
	for i, x := range w.order {
		if x.inPlace {
			continue
		}
		if err := w.buffers[slots[i].buffer].Place(x.t, slots[i].offset); err != nil {
			return fmt.Errorf("tensor %q: %w", x.info.Name, err)
		}
	}
	return nil
}

// fill brings one weight's bytes to where they are used.
func (w *Weights) fill(x *weight, report func(int64)) error {
	lib := w.device.Lib
	_, computed := x.source.(tensor.FloatSource)
	if x.dtype == x.info.DType && !computed {
		return copyBytes(lib, x, report)
	}
	return w.convert(x, report)
}

// copyBytes reads straight into host memory, or through one chunk to a device.
func copyBytes(lib *native.Library, x *weight, report func(int64)) error {
	size := x.source.Size()
	if size != x.t.Bytes() {
		return fmt.Errorf("it has %d bytes, expected %d", size, x.t.Bytes())
	}
	memory := lib.Memory(x.t)
	var chunk []byte
	if memory == nil {
		chunk = make([]byte, min(size, chunkBytes))
	}
	for off := int64(0); off < size; {
		n := min(size-off, chunkBytes)
		dst := chunk
		if memory != nil {
			dst = memory[off:]
		}
		if err := tensor.ReadExact(x.source, dst[:n], off); err != nil {
			return err
		}
		if memory == nil {
			if err := lib.Set(x.t, dst[:n], off); err != nil {
				return err
			}
		}
		off += n
		report(n)
	}
	return nil
}

// convert reads pieces of rows as floats and stores them in the kept type,
// which is f16 or f32.
func (w *Weights) convert(x *weight, report func(int64)) error {
	lib, d := w.device.Lib, x.info.DType
	total := x.t.Elements()
	block := d.Block()
	step := max(int64(chunkBytes/4)/block*block, block)
	floats := make([]float32, min(step, total))
	raw := make([]byte, (min(step, total)+block-1)/block*d.BlockBytes())
	out := make([]byte, int64(len(floats))*x.dtype.BlockBytes())
	for first := int64(0); first < total; first += step {
		n := min(step, total-first)
		f := floats[:n]
		if src, ok := x.source.(tensor.FloatSource); ok {
			if err := src.ReadFloats(f, first); err != nil {
				return err
			}
		} else {
			piece := raw[:(n+block-1)/block*d.BlockBytes()]
			if err := tensor.ReadExact(x.source, piece, first/block*d.BlockBytes()); err != nil {
				return err
			}
			if err := decode(lib, d, piece, f); err != nil {
				return err
			}
		}
		bytes := out[:n*x.dtype.BlockBytes()]
		if _, err := lib.QuantizeChunk(x.dtype, f, bytes, 1, n, nil); err != nil {
			return err
		}
		if err := lib.Set(x.t, bytes, first*x.dtype.BlockBytes()); err != nil {
			return err
		}
		report(n / block * d.BlockBytes())
	}
	return nil
}

// decode turns stored bytes into floats: with ggml's code where it has the
// type, else with ours (F8, F64, integers).
func decode(lib *native.Library, d tensor.DType, src []byte, dst []float32) error {
	if id, ok := d.GGML(); ok && lib.HasType(id) && (d.IsQuantized() || d == tensor.F32 || d == tensor.F16 || d == tensor.BF16) {
		return lib.ToFloat(d, src, dst)
	}
	return quant.Lookup(d).Dequantize(dst, src)
}

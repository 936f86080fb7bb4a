package convert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// ShardOptions say how to cut a file. One of MaxBytes and MaxTensors is set.
type ShardOptions struct {
	MaxBytes   int64 // of tensor data in a part; a larger tensor gets one of its own
	MaxTensors int
	WriteOptions
}

// ErrSplitFormat is wrapped for inputs that have no sharded form.
var ErrSplitFormat = errors.New("only GGUF and safetensors files can be split and merged")

// Split writes a checkpoint as a set of parts: PREFIX-00001-of-0000N.gguf with
// llama.cpp's split keys, or .safetensors with an index beside them. It returns
// the paths written. After an error the parts written so far are removed.
func Split(ctx context.Context, cp *Checkpoint, prefix string, o ShardOptions) (paths []string, err error) {
	if cp.Format != FormatGGUF && cp.Format != FormatSafetensors {
		return nil, fmt.Errorf("split %s, a %s file: %w", cp.Path, cp.Format, ErrSplitFormat)
	}
	parts := cutParts(cp.Tensors, o)
	name := func(i int) string {
		p := gguf.SplitName(prefix, i, len(parts))
		if cp.Format == FormatSafetensors {
			p = strings.TrimSuffix(p, ".gguf") + ".safetensors"
		}
		return p
	}
	index := prefix + ".safetensors.index.json"
	targets := make([]string, 0, len(parts)+1)
	for i := range parts {
		targets = append(targets, name(i))
	}
	if cp.Format == FormatSafetensors {
		targets = append(targets, index)
	}
	for _, p := range targets { // all are looked at before the first is written
		if err := writer.Check(p, o.Overwrite, cp.Paths); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			for _, p := range paths {
				err = errors.Join(err, os.Remove(p))
			}
			paths = nil
		}
	}()
	for i, part := range parts {
		plan, err := cp.partPlan(part, i, len(parts))
		if err != nil {
			return paths, err
		}
		if err := cp.writePlan(ctx, plan, name(i), o.WriteOptions); err != nil {
			return paths, err
		}
		paths = append(paths, name(i))
	}
	if cp.Format == FormatSafetensors {
		err := writer.WriteFile(index, writer.FileOptions{Overwrite: o.Overwrite, Inputs: cp.Paths}, func(w io.Writer) error {
			return writeIndex(w, parts, targets)
		})
		if err != nil {
			return paths, err
		}
		paths = append(paths, index)
	}
	return paths, nil
}

// cutParts divides tensors in their order.
func cutParts(tensors []tensor.Tensor, o ShardOptions) [][]tensor.Tensor {
	var parts [][]tensor.Tensor
	size := int64(0)
	for _, t := range tensors {
		n := t.Source.Size()
		last := len(parts) - 1
		full := last < 0 || o.MaxTensors > 0 && len(parts[last]) >= o.MaxTensors || o.MaxBytes > 0 && size+n > o.MaxBytes && len(parts[last]) > 0
		if full {
			parts = append(parts, nil)
			last, size = last+1, 0
		}
		parts[last] = append(parts[last], t)
		size += n
	}
	if parts == nil {
		parts = [][]tensor.Tensor{nil}
	}
	return parts
}

// partPlan plans part i of n. The first part of a GGUF set has all metadata.
func (c *Checkpoint) partPlan(tensors []tensor.Tensor, i, n int) (*writer.Plan, error) {
	plan := &writer.Plan{Entries: entries(tensors)}
	infos := make([]tensor.Info, len(tensors))
	for k, t := range tensors {
		infos[k] = t.Info
	}
	var err error
	if c.Format == FormatSafetensors {
		plan.Layout, err = safetensors.NewLayout(c.Strings, infos)
		return plan, err
	}
	var md gguf.Metadata
	if i == 0 {
		md = c.Metadata.Clone()
		md.DropSplit()
	} else if v, ok := c.Metadata.Get(gguf.KeyAlignment); ok {
		md.Set(gguf.KeyAlignment, v)
	}
	md.Set(gguf.KeySplitNo, gguf.U16(uint16(i)))
	md.Set(gguf.KeySplitCount, gguf.U16(uint16(n)))
	md.Set(gguf.KeySplitTensors, gguf.I32(int32(len(c.Tensors))))
	plan.Layout, err = gguf.NewLayout(md, infos, gguf.WithAxes(axesMax))
	return plan, err
}

// entries copies tensors as they are.
func entries(tensors []tensor.Tensor) []writer.Entry {
	var files fileNumbers
	list := make([]writer.Entry, len(tensors))
	for i, t := range tensors {
		e := writer.Entry{Info: t.Info}
		switch s, ok := t.Source.(*tensor.Section); {
		case t.Source.Size() == 0:
		case ok:
			e.Copy, e.Order = s, writer.Order{File: files.number([]string{s.Path}), Offset: s.Offset}
		default:
			e.Fill = &rawFill{t.Source, t.DType.BlockBytes()}
		}
		list[i] = e
	}
	return list
}

func (c *Checkpoint) writePlan(ctx context.Context, plan *writer.Plan, path string, o WriteOptions) error {
	_, err := writer.Write(ctx, plan, writer.Options{
		Path: path, Inputs: c.Paths, Overwrite: o.Overwrite, Threads: o.Threads, MaxMemory: o.MaxMemory,
		Progress: o.Progress, Verify: c.Check,
	})
	return err
}

// writeIndex writes Hugging Face's index of shards.
func writeIndex(w io.Writer, parts [][]tensor.Tensor, targets []string) error {
	doc := struct {
		Metadata struct {
			Total int64 `json:"total_size"`
		} `json:"metadata"`
		Map map[string]string `json:"weight_map"`
	}{Map: make(map[string]string)}
	for i, part := range parts {
		for _, t := range part {
			doc.Map[t.Name] = filepath.Base(targets[i])
			doc.Metadata.Total += t.Source.Size()
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

// Join writes an opened set as one file of the same format, tensors and metadata
// as they are, without the split keys.
func Join(ctx context.Context, cp *Checkpoint, path string, o WriteOptions) error {
	plan := &writer.Plan{Entries: entries(cp.Tensors)}
	infos := make([]tensor.Info, len(cp.Tensors))
	for i, t := range cp.Tensors {
		infos[i] = t.Info
	}
	var err error
	switch cp.Format {
	case FormatSafetensors:
		plan.Layout, err = safetensors.NewLayout(cp.Strings, infos)
	case FormatGGUF:
		md := cp.Metadata.Clone()
		md.DropSplit()
		plan.Layout, err = gguf.NewLayout(md, infos, gguf.WithAxes(axesMax))
	default:
		err = fmt.Errorf("merge %s, a %s file: %w", cp.Path, cp.Format, ErrSplitFormat)
	}
	if err != nil {
		return err
	}
	return cp.writePlan(ctx, plan, path, o)
}

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/scaled"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// arrayShown is how many elements of a metadata array inspect shows.
const arrayShown = 8

// stringShown is how many characters of a metadata string inspect shows.
const stringShown = 200

type inspectFlags struct {
	tensors bool
	json    bool
	open    convert.OpenOptions
}

func newInspectCommand(a *app) *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show what is in a checkpoint",
		Long: `Show the format, metadata, family, types and tensors of a checkpoint: a safetensors,
GGUF or torch file, an index, or a folder. Nothing but headers and
the settings of scaled weights is read.

A file whose data is cut short is shown as far as its header goes; the exit code is
then 1.`,
		Example: `  sdtool inspect model.safetensors
  sdtool inspect model.gguf --tensors
  sdtool inspect pipeline-folder/ --json`,
		Args: arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error { return a.runInspect(args[0], &f) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.tensors, "tensors", false, "list the tensors")
	fs.BoolVar(&f.json, "json", false, "print JSON, tensors included")
	fs.StringVar(&f.open.Variant, "variant", "", "kind of file to take from folders, as fp16")
	fs.BoolVar(&f.open.AllowOutside, "allow-outside", false, "let an index name files outside its folder")
	return cmd
}

// inspectJSON is what inspect --json prints.
type inspectJSON struct {
	Path      string           `json:"path"`
	Format    string           `json:"format"`
	Version   int              `json:"version,omitempty"`
	BigEndian bool             `json:"big_endian,omitempty"`
	Alignment int64            `json:"alignment,omitempty"`
	Files     []string         `json:"files"`
	Size      int64            `json:"size"`
	Truncated string           `json:"truncated,omitempty"`
	Family    *familyJSON      `json:"family,omitempty"`
	Metadata  map[string]any   `json:"metadata"`
	Count     int              `json:"tensor_count"`
	Bytes     map[string]int64 `json:"bytes_by_type"`
	Tensors   []inspectTensor  `json:"tensors"`
	Scaled    map[string]int   `json:"scaled_weights,omitempty"` // by scheme
	Notes     []string         `json:"notes,omitempty"`
}

type inspectTensor struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	File   string  `json:"file,omitempty"`
	Offset *int64  `json:"offset,omitempty"`
	Size   int64   `json:"size"`
}

func (a *app) runInspect(path string, f *inspectFlags) (err error) {
	cp, cut := convert.Open(path, f.open)
	if cp == nil {
		return cut
	}
	if cut == nil {
		defer func() { err = errors.Join(err, cp.Close()) }()
	} else if !convert.IsTruncated(cut) {
		return errors.Join(cut, cp.Close())
	}
	view := inspect(cp)
	if cut != nil {
		view.Truncated = cut.Error()
	} else {
		view.Scaled = scaledSchemes(cp)
	}
	if f.json {
		err = a.printJSON(view)
	} else {
		err = a.printInspect(cp, view, f.tensors)
	}
	if err == nil && cut != nil {
		return cut
	}
	return err
}

func inspect(cp *convert.Checkpoint) *inspectJSON {
	view := &inspectJSON{
		Path: cp.Path, Format: cp.Format.String(), Files: cp.Paths, Size: cp.Size, Metadata: map[string]any{},
		Count: len(cp.Tensors), Bytes: map[string]int64{}, Tensors: []inspectTensor{}, Notes: cp.Notes,
	}
	if g := cp.GGUF; g != nil {
		view.Version, view.BigEndian, view.Alignment = g.Version, g.BigEndian, g.Alignment
	}
	for _, kv := range cp.Metadata {
		view.Metadata[kv.Key] = shorten(kv.Value.Any())
		if kv.Value.Len() > arrayShown {
			view.Metadata[kv.Key] = kv.Value.Format(arrayShown)
		}
	}
	for key, value := range cp.Strings {
		view.Metadata[key] = shorten(value)
	}
	for _, t := range cp.Tensors {
		it := inspectTensor{Name: t.Name, DType: t.DType.String(), Shape: append([]int64{}, t.Shape...), Size: storedBytes(t)}
		view.Bytes[it.DType] += it.Size
		if s, ok := t.Source.(*tensor.Section); ok {
			it.File, it.Offset = s.Path, &s.Offset
		}
		view.Tensors = append(view.Tensors, it)
	}
	view.Family = familyOf(cp)
	return view
}

// scaledSchemes counts weights that have scales, by scheme. What cannot be told is
// an error of the commands that need it, not of a look at the file.
func scaledSchemes(cp *convert.Checkpoint) map[string]int {
	_, report, err := scaled.Decode(cp.Tensors, scaled.Options{Metadata: cp.Strings})
	if err != nil {
		return map[string]int{"unknown: " + err.Error(): 1}
	}
	count := make(map[string]int)
	for scheme, n := range report.Schemes() {
		count[string(scheme)] = n
	}
	return count
}

func storedBytes(t tensor.Tensor) int64 {
	if t.Source != nil {
		return t.Source.Size()
	}
	n, err := t.Bytes()
	if err != nil {
		return 0
	}
	return n
}

// shorten cuts long strings.
func shorten(v any) any {
	if s, ok := v.(string); ok {
		if r := []rune(s); len(r) > stringShown {
			return fmt.Sprintf("%s… (%d characters)", string(r[:stringShown]), len(r))
		}
	}
	return v
}

func (a *app) printInspect(cp *convert.Checkpoint, v *inspectJSON, tensors bool) error {
	t := newTable(a.stdout)
	t.row("path", v.Path)
	format := v.Format
	if v.Version > 0 {
		format = fmt.Sprintf("%s version %d, alignment %d", v.Format, v.Version, v.Alignment)
	}
	if v.BigEndian {
		format += ", big-endian"
	}
	t.row("format", format)
	if len(v.Files) > 1 {
		t.row("files", len(v.Files))
	}
	t.row("size", fmt.Sprintf("%s (%d bytes)", writer.FormatSize(v.Size), v.Size))
	if v.Truncated != "" {
		t.row("CUT SHORT", v.Truncated)
	}
	if v.Family != nil {
		v.Family.rows(t)
	}
	t.row("tensors", v.Count)
	for _, d := range slices.Sorted(maps.Keys(v.Bytes)) {
		n := 0
		for _, x := range v.Tensors {
			if x.DType == d {
				n++
			}
		}
		t.row("  "+d, fmt.Sprintf("%s, %s", plural(n, "tensor"), writer.FormatSize(v.Bytes[d])))
	}
	for _, scheme := range slices.Sorted(maps.Keys(v.Scaled)) {
		t.row("scaled", fmt.Sprintf("%s stored as %s", plural(v.Scaled[scheme], "weight"), scheme))
	}
	for _, note := range v.Notes {
		t.row("note", note)
	}
	if n := len(cp.Metadata) + len(cp.Strings); n > 0 {
		t.row("metadata", n)
		for _, kv := range cp.Metadata {
			text := kv.Value.Format(arrayShown)
			t.row("  "+kv.Key, shorten(text))
		}
		for _, key := range slices.Sorted(maps.Keys(cp.Strings)) {
			t.row("  "+key, shorten(fmt.Sprintf("%q", cp.Strings[key])))
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if !tensors {
		return nil
	}
	t = newTable(a.stdout)
	t.row("TENSOR", "DTYPE", "SHAPE", "OFFSET", "BYTES")
	for _, x := range v.Tensors {
		offset := "-"
		if x.Offset != nil {
			offset = fmt.Sprint(*x.Offset)
		}
		t.row(x.Name, x.DType, tensor.ShapeString(x.Shape), offset, x.Size)
	}
	return t.flush()
}

package convert

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// ErrNothing is wrapped when no tensor is left to write.
var ErrNothing = errors.New("no tensors to write")

// Conversion is a planned conversion with its inputs open. Close it when done.
type Conversion struct {
	Family   rename.Family
	Found    rename.Found // what it was told from
	Outputs  []*Output    // one, or one for each component
	Unused   []string     // tensors left out because no runtime reads them
	Excluded int          // tensors left out by Include and Exclude
	Warnings []string
	Coverage *Coverage // nil without an importance matrix

	components []*Component
	items      []*item
	weights    *weightIndex
}

// Output is one planned file.
type Output struct {
	Path    string
	Format  Format
	Role    Role // of its component, if there is one file for each
	Tensors []*Tensor
	Size    int64 // bytes, exact
	Resumed int64 // bytes of tensors that an earlier run had written

	plan *writer.Plan
}

// Tensor tells what becomes of one tensor.
type Tensor struct {
	Name      string   // final
	Inputs    []string // names in its file of what it is made of: more than one if it was fused
	Component Role
	From, To  tensor.DType
	Shape     []int64 // as written
	Bytes     int64   // as written
	InBytes   int64
	Decision  Decision
	Weights   string // what the quantizer gets: "imatrix", "ones", "none", or "" if the type uses none

	counts *counts
	source tensor.Tensor // what it is made of
}

// Overflow returns how many numbers or block scales became infinite; it is
// final when the conversion has been written.
func (t *Tensor) Overflow() int64 { return t.counts.overflow.Load() }

// Cut returns how many integers lost high bits, which only happens where another
// tool is imitated; it is final when the conversion has been written.
func (t *Tensor) Cut() int64 { return t.counts.cut.Load() }

// Unweighted returns how many blocks were quantized without weights because
// theirs were zero.
func (t *Tensor) Unweighted() int64 { return t.counts.fallback.Load() }

// Plan opens the inputs and decides everything about the output. Nothing is
// written. The caller closes the Conversion.
func Plan(ctx context.Context, o Options) (*Conversion, error) {
	if len(o.Inputs) == 0 {
		return nil, errors.New("no input given")
	}
	scales := ScalesMultiply
	switch {
	case o.KeepScales:
		scales = ScalesKeep
	case o.Policy.Compat:
		scales = ScalesIgnore
	}
	components, err := OpenComponents(o.Inputs, o.Open, scales)
	if err != nil {
		return nil, err
	}
	c := &Conversion{components: components}
	if err := c.plan(ctx, &o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Conversion) plan(ctx context.Context, o *Options) error {
	for _, comp := range c.components {
		c.Warnings = append(c.Warnings, comp.Notes...)
		c.scaledNotes(comp)
	}
	if err := c.gather(o); err != nil {
		return err
	}
	if len(c.items) == 0 {
		return c.nothing(o)
	}
	if err := c.openWeights(o); err != nil {
		return err
	}
	for _, out := range c.groups(o) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.planOutput(out, o); err != nil {
			return err
		}
	}
	c.idleRules(o)
	c.items = nil // a header of many tensors makes them worth some megabytes
	return c.finishWeights(o)
}

// idleRules warns of rules that decided nothing. Those of presets are written
// for more than one model, so that some of them always do.
func (c *Conversion) idleRules(o *Options) {
	used := make(map[*Rule]bool)
	var names []string
	for _, out := range c.Outputs {
		for _, t := range out.Tensors {
			used[t.Decision.Rule] = true
			names = append(names, t.Name)
		}
	}
	for i := range o.Policy.Rules {
		r := &o.Policy.Rules[i]
		switch {
		case used[r] || r.Preset:
		case slices.ContainsFunc(names, r.Pattern.MatchString):
			c.warn("rule %s (%s) decides nothing: earlier rules find the same tensors", r.Text, r.Origin)
		default:
			c.warn("rule %s (%s) finds no tensor", r.Text, r.Origin)
		}
	}
}

// scaledNotes says what was decoded.
func (c *Conversion) scaledNotes(comp *Component) {
	if comp.opaque {
		c.warn("%s: scaled weights are passed on with their scales; a reader that does not know them gets wrong numbers", comp.Path)
	}
	if comp.Scaled == nil {
		return
	}
	if kept := comp.Scaled.Kept; len(kept) > 0 {
		c.warn("%s: %d tensors look like scales but belong to no scaled weight; they are kept: %s", comp.Path, len(kept), List(kept))
	}
}

func (c *Conversion) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

func (c *Conversion) nothing(o *Options) error {
	paths := make([]string, len(o.Inputs))
	for i, in := range o.Inputs {
		paths[i] = in.Path
	}
	switch {
	case c.Excluded > 0:
		return fmt.Errorf("%s: %w: --include and --exclude leave out all %d", List(paths), ErrNothing, c.Excluded)
	case len(c.Unused) > 0:
		return fmt.Errorf("%s: %w: all %d are unused by any runtime (--keep-unused keeps them)", List(paths), ErrNothing, len(c.Unused))
	}
	return fmt.Errorf("%s: %w: the file holds none", List(paths), ErrNothing)
}

// group is the tensors of one output file.
type group struct {
	path  string
	role  Role
	items []*item
}

// groups divides the tensors over the output files.
func (c *Conversion) groups(o *Options) []*group {
	if !o.Split {
		return []*group{{path: o.Output, items: c.items}}
	}
	return c.splitGroups(o)
}

// planOutput plans one file.
func (c *Conversion) planOutput(g *group, o *Options) error {
	out := &Output{Path: g.path, Format: o.Format, Role: g.role}
	plan := &writer.Plan{}
	var misfits []string
	for _, it := range g.items {
		t, entry, err := c.planTensor(it, o)
		if err != nil {
			return err
		}
		if t.Decision.Reason == ReasonBlock || t.Decision.Reason == ReasonFallback {
			misfits = append(misfits, t.Name)
		}
		out.Tensors = append(out.Tensors, t)
		plan.Entries = append(plan.Entries, *entry)
	}
	if o.Strict && len(misfits) > 0 {
		return fmt.Errorf("the rows of %d tensors do not fit the wanted type (--strict): %s", len(misfits), List(misfits))
	}
	infos := make([]tensor.Info, len(plan.Entries))
	for i := range plan.Entries {
		infos[i] = plan.Entries[i].Info
	}
	c.longNames(out)
	var err error
	if o.Format == FormatGGUF {
		plan.Layout, err = gguf.NewLayout(c.metadata(g, out, o), infos, c.layoutOptions(o)...)
	} else {
		plan.Layout, err = safetensors.NewLayout(c.strings(g, out, o), infos)
	}
	if err != nil {
		return err
	}
	out.plan, out.Size = plan, plan.Layout.Size
	c.Outputs = append(c.Outputs, out)
	return nil
}

// longNames warns of names that the usual readers of GGUF refuse.
func (c *Conversion) longNames(out *Output) {
	var long []string
	for _, t := range out.Tensors {
		if out.Format == FormatGGUF && len(t.Name) > gguf.NameLimitGGML {
			long = append(long, t.Name)
		}
	}
	if len(long) > 0 {
		c.warn("%d tensor names are longer than %d bytes: stable-diffusion.cpp takes them up to %d, ComfyUI-GGUF's tools up to %d, ggml as it comes does not: %s",
			len(long), gguf.NameLimitGGML, gguf.NameLimitSD, gguf.NameLimitComfy, List(long))
	}
}

func (c *Conversion) layoutOptions(o *Options) []gguf.LayoutOption {
	var opts []gguf.LayoutOption
	if o.NativeAxes {
		opts = append(opts, gguf.WithAxes(axesMax))
	}
	if o.NameLimit > 0 {
		opts = append(opts, gguf.WithNameLimit(o.NameLimit))
	}
	return opts
}

// planTensor decides one tensor's type and shape and how its bytes are made.
func (c *Conversion) planTensor(it *item, o *Options) (*Tensor, *writer.Entry, error) {
	own, err := ownType(it, o.Format, o.Policy.Compat)
	if err != nil {
		return nil, nil, err
	}
	if o.KeepTypes && !it.scaled && representable(it.DType, o.Format) {
		own = it.DType
	}
	shape := it.Shape
	if it.hasOrig {
		shape = it.orig
	}
	d := o.Policy.Decide(Subject{
		Name: it.Name, Stored: it.DType, Own: own, Shape: shape,
		Scaled: it.scaled, Opaque: it.opaque, Numbers: isNumbers(it.DType),
	})
	if d.Type != tensor.Invalid && !representable(d.Type, o.Format) {
		return nil, nil, &TypeError{it.Name, d.Type, o.Format}
	}
	if d.Type == tensor.Invalid {
		return nil, nil, &TypeError{it.Name, it.DType, o.Format}
	}
	if it.hasOrig && !fits(it.orig, d.Type) {
		shape = it.Shape // blocks run across the rows of the recorded shape
	}
	t := &Tensor{
		Name: it.Name, Inputs: it.inputs, Component: it.component.Role,
		From: it.DType, To: d.Type, Decision: d, InBytes: it.Source.Size(), counts: &counts{}, source: it.Tensor,
	}
	t.Shape = shape
	if o.Format == FormatGGUF && !o.NativeAxes {
		t.Shape = fold(shape)
	}
	entry := &writer.Entry{Info: tensor.Info{Name: it.Name, DType: d.Type, Shape: t.Shape}, Order: it.order}
	if t.Bytes, err = entry.Bytes(); err != nil {
		return nil, nil, fmt.Errorf("tensor %q: %w", it.Name, err)
	}
	if t.Bytes == 0 {
		return t, entry, nil
	}
	return t, entry, c.fill(it, t, entry, shape, o)
}

// fill sets how an entry's bytes are made.
func (c *Conversion) fill(it *item, t *Tensor, entry *writer.Entry, shape []int64, o *Options) error {
	if it.DType == t.To {
		if s, ok := it.Source.(*tensor.Section); ok {
			entry.Copy = s
		} else {
			entry.Fill = &rawFill{it.Source, it.DType.BlockBytes()}
		}
		return nil
	}
	if !isNumbers(it.DType) {
		entry.Fill = &intFill{source: it.Source, from: it.DType, to: t.To, truncate: o.Policy.Compat, cut: &t.counts.cut}
		return nil
	}
	weights, err := c.columnWeights(it, t, shape, o)
	if err != nil {
		return err
	}
	fill, err := newFloatFill(it.Tensor, shape, t.To, weights, o.Policy.Compat, t.counts)
	if err != nil {
		return err
	}
	entry.Fill = fill
	return nil
}

// isNumbers reports whether a type holds real numbers that float32 can stand for.
func isNumbers(d tensor.DType) bool {
	return (d.IsFloat() || d.IsQuantized()) && quant.Lookup(d).CanDequantize
}

// axesMax is the most axes that GGUF files are written with.
const axesMax = 8

// fold merges the outermost axes until there are at most four, as
// stable-diffusion.cpp does. The bytes stay the same.
func fold(shape []int64) []int64 {
	if len(shape) <= gguf.AxesLimit {
		return shape
	}
	n := len(shape) - gguf.AxesLimit
	out := slices.Clone(shape[n:])
	for _, axis := range shape[:n] {
		out[0] *= axis
	}
	return out
}

// Inputs lists the files that are read.
func (c *Conversion) Inputs() []string {
	var paths []string
	for _, comp := range c.components {
		paths = append(paths, comp.Paths...)
		if comp.Index != "" {
			paths = append(paths, comp.Index)
		}
	}
	if c.weights != nil {
		paths = append(paths, c.weights.paths...)
	}
	return absolute(paths)
}

// Check returns a *tensor.ChangedError if an input has changed since it was opened.
func (c *Conversion) Check() error {
	for _, comp := range c.components {
		if err := comp.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Components lists the opened inputs.
func (c *Conversion) Components() []*Component { return c.components }

// Close closes the inputs.
func (c *Conversion) Close() error {
	err := CloseComponents(c.components)
	if c.weights != nil {
		err = errors.Join(err, c.weights.close())
	}
	return err
}

// WriteOptions say how to write.
type WriteOptions struct {
	Overwrite bool
	Threads   int   // 0: as many as the machine has cores
	MaxMemory int64 // bytes; 0: writer.DefaultMaxMemory
	Progress  func(writer.Progress)
	// Resume keeps what is written if writing fails, and goes on from there the
	// next time.
	Resume bool
}

// Write writes every output. Each is complete or not there; with several, those
// before a failure stay.
func (c *Conversion) Write(ctx context.Context, w WriteOptions) error {
	inputs := c.Inputs()
	for _, out := range c.Outputs {
		if err := writer.Check(out.Path, w.Overwrite, inputs); err != nil {
			return err
		}
	}
	if w.MaxMemory <= 0 {
		w.MaxMemory = writer.DefaultMaxMemory
	}
	budget, err := c.weights.budget(w.MaxMemory)
	if err != nil {
		return err
	}
	var before, total int64
	for _, out := range c.Outputs {
		total += out.bytes()
	}
	for _, out := range c.Outputs {
		fingerprint := ""
		if w.Resume {
			if fingerprint, err = c.fingerprint(out); err != nil {
				return err
			}
		}
		res, err := writer.Write(ctx, out.plan, writer.Options{
			Resume: w.Resume, Fingerprint: fingerprint,
			Path: out.Path, Inputs: inputs, Overwrite: w.Overwrite, Threads: w.Threads, MaxMemory: budget, Verify: c.Check,
			Progress: func(p writer.Progress) {
				if w.Progress != nil {
					w.Progress(writer.Progress{Done: before + p.Done, Total: total, Tensor: p.Tensor})
				}
			},
		})
		if err != nil {
			return err
		}
		out.Resumed = res.Resumed
		before += out.bytes()
	}
	return nil
}

// bytes is the size of all tensors.
func (o *Output) bytes() int64 {
	n := int64(0)
	for _, t := range o.Tensors {
		n += t.Bytes
	}
	return n
}

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// planTensor is a tensor in JSON output.
type planTensor struct {
	Name      string   `json:"name"`
	Input     string   `json:"input"`
	Inputs    []string `json:"inputs,omitempty"` // all of them, if it was fused
	Component string   `json:"component"`
	From      string   `json:"from"`
	To        string   `json:"to"`
	Shape     []int64  `json:"shape"`
	Bytes     int64    `json:"bytes"`
	Rule      string   `json:"rule,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Why       string   `json:"why,omitempty"`
	Weights   string   `json:"weights,omitempty"`
	Overflow  int64    `json:"overflow,omitempty"`
	Cut       int64    `json:"cut,omitempty"` // integers that lost high bits
}

type planOutput struct {
	Path    string           `json:"path"`
	Format  string           `json:"format"`
	Size    int64            `json:"size"`
	Types   map[string]int   `json:"types"`
	Bytes   map[string]int64 `json:"bytes_by_type"`
	Tensors []planTensor     `json:"tensors"`
}

type planJSON struct {
	Family   string         `json:"family,omitempty"`
	Outputs  []planOutput   `json:"outputs"`
	Unused   []string       `json:"unused,omitempty"`
	Excluded int            `json:"excluded,omitempty"`
	Rules    []string       `json:"rules,omitempty"`
	Imatrix  *imatrixReport `json:"imatrix,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`
	Seconds  float64        `json:"seconds,omitempty"`
}

type imatrixReport struct {
	Files   []string `json:"files"`
	Entries int      `json:"entries"`
	Covered int      `json:"covered"`
	Total   int      `json:"quantized"`
	Missing []string `json:"missing,omitempty"`
	Partial []string `json:"partial_experts,omitempty"`
}

func toJSON(c *convert.Conversion) *planJSON {
	p := &planJSON{Unused: c.Unused, Excluded: c.Excluded, Warnings: c.Warnings}
	if c.Family.Known() {
		p.Family = c.Family.String()
	}
	for _, out := range c.Outputs {
		o := planOutput{Path: out.Path, Format: out.Format.String(), Size: out.Size, Types: map[string]int{}, Bytes: map[string]int64{}}
		for _, t := range out.Tensors {
			o.Types[t.To.String()]++
			o.Bytes[t.To.String()] += t.Bytes
			o.Tensors = append(o.Tensors, tensorJSON(t))
		}
		p.Outputs = append(p.Outputs, o)
	}
	if v := c.Coverage; v != nil {
		p.Imatrix = &imatrixReport{v.Files, v.Entries, v.Covered, v.Total, v.Missing, v.Partial}
	}
	return p
}

func tensorJSON(t *convert.Tensor) planTensor {
	p := planTensor{
		Name: t.Name, Input: t.Inputs[0], Component: t.Component.String(), From: t.From.String(), To: t.To.String(),
		Shape: t.Shape, Bytes: t.Bytes, Reason: t.Decision.Reason.String(), Why: t.Decision.Explain(),
		Weights: t.Weights, Overflow: t.Overflow(), Cut: t.Cut(),
	}
	if len(t.Inputs) > 1 {
		p.Inputs = t.Inputs
	}
	if t.Shape == nil {
		p.Shape = []int64{}
	}
	if r := t.Decision.Rule; r != nil {
		p.Rule = r.Text
	}
	return p
}

// quoted joins names that one tensor is made of.
func quoted(names []string) string {
	q := make([]string, len(names))
	for i, name := range names {
		q[i] = strconv.Quote(name)
	}
	return strings.Join(q, " + ")
}

// printPlan prints what --dry-run shows; names asks for the names in the input too.
func (a *app) printPlan(c *convert.Conversion, o *convert.Options, asJSON, names bool) error {
	if asJSON {
		p := toJSON(c)
		for _, r := range o.Policy.Rules {
			p.Rules = append(p.Rules, r.Text)
		}
		return a.printJSON(p)
	}
	if len(o.Policy.Rules) > 0 {
		if err := a.println("type rules, the first that fits decides:"); err != nil {
			return err
		}
		for _, r := range o.Policy.Rules {
			if err := a.printf("  %s\t(%s)\n", clean(r.Text), clean(r.Origin)); err != nil {
				return err
			}
		}
	}
	for _, out := range c.Outputs {
		t := newTable(a.stdout)
		head := []any{"TENSOR", "FROM", "TO", "SHAPE", "BYTES", "WHY"}
		if names {
			head = append([]any{"INPUT", "→"}, head...)
		}
		t.row(head...)
		for _, x := range out.Tensors {
			row := []any{x.Name, x.From, x.To, tensor.ShapeString(x.Shape), x.Bytes, why(x)}
			if names {
				row = append([]any{strings.Join(x.Inputs, " + "), "→"}, row...)
			}
			t.row(row...)
		}
		if err := t.flush(); err != nil {
			return err
		}
		path := out.Path
		if path == "" {
			path = "the output"
		}
		if err := a.printf("%s: %s, exactly %d bytes; nothing was written\n", clean(path), outputLine(out), out.Size); err != nil {
			return err
		}
	}
	return a.printNotes(c)
}

// why says in a few words what decided a tensor's type.
func why(t *convert.Tensor) string {
	var parts []string
	if r := t.Decision.Rule; r != nil {
		parts = append(parts, "rule "+r.Text)
	}
	if t.Decision.Reason != convert.ReasonRule {
		if s := t.Decision.Explain(); s != "" {
			parts = append(parts, s)
		}
	}
	if t.Weights == "imatrix" {
		parts = append(parts, "imatrix")
	}
	return strings.Join(parts, "; ")
}

// outputLine sums an output up: size, tensors by type, bits per weight.
func outputLine(out *convert.Output) string {
	count := make(map[tensor.DType]int)
	var bytes, elements int64
	for _, t := range out.Tensors {
		count[t.To]++
		bytes += t.Bytes
		if n, err := tensor.Elements(t.Shape); err == nil {
			elements += n
		}
	}
	types := slices.SortedFunc(maps.Keys(count), func(x, y tensor.DType) int {
		return cmp.Or(cmp.Compare(count[y], count[x]), cmp.Compare(x.String(), y.String()))
	})
	parts := make([]string, len(types))
	for i, d := range types {
		parts[i] = fmt.Sprintf("%d %s", count[d], d)
	}
	bpw := 8 * float64(bytes) / float64(max(elements, 1))
	return fmt.Sprintf("%s, %s (%s), %.2f bits per weight", writer.FormatSize(out.Size), plural(len(out.Tensors), "tensor"), strings.Join(parts, ", "), bpw)
}

// printSummary prints what was done.
func (a *app) printSummary(c *convert.Conversion, took time.Duration, asJSON bool) error {
	for _, out := range c.Outputs {
		for _, line := range lossLines(out) {
			fmt.Fprintf(a.stderr, "warning: %s\n", clean(line)) // what is lost shows with --quiet too
		}
	}
	if asJSON {
		p := toJSON(c)
		p.Seconds = took.Seconds()
		return a.printJSON(p)
	}
	if a.quiet {
		return nil
	}
	for _, out := range c.Outputs {
		if err := a.printf("wrote %s: %s, in %.1f s\n", clean(out.Path), outputLine(out), took.Seconds()); err != nil {
			return err
		}
		if out.Resumed > 0 {
			if err := a.printf("  %s had been written by an earlier run\n", writer.FormatSize(out.Resumed)); err != nil {
				return err
			}
		}
		if a.verbose {
			t := newTable(a.stdout)
			for _, x := range out.Tensors {
				t.row(" ", x.Name, fmt.Sprintf("%s → %s", x.From, x.To), tensor.ShapeString(x.Shape), why(x))
			}
			if err := t.flush(); err != nil {
				return err
			}
		}
	}
	return a.printNotes(c)
}

// printNotes prints what both the plan and the summary end with.
func (a *app) printNotes(c *convert.Conversion) error {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if c.Family.Known() {
		add("family: %s", familyText(c.Family))
	}
	lines = append(lines, misfitLines(c)...)
	if n := len(c.Unused); n > 0 {
		add("left out: %s that no runtime reads: %s", plural(n, "tensor"), convert.List(c.Unused))
	}
	if c.Excluded > 0 {
		add("left out: %s by --include and --exclude", plural(c.Excluded, "tensor"))
	}
	if v := c.Coverage; v != nil {
		add("imatrix: %d of %s whose type uses weights have an entry (%d entries in %s)", v.Covered, plural(v.Total, "tensor"), v.Entries, convert.List(v.Files))
		if len(v.Missing) > 0 {
			add("imatrix: without an entry: %s", convert.List(v.Missing))
		}
		if len(v.Partial) > 0 {
			add("imatrix: experts that saw nothing get weight 1 in %s", convert.List(v.Partial))
		}
	}
	lines = append(lines, scaledLines(c)...)
	var unweighted int64
	for _, out := range c.Outputs {
		for _, t := range out.Tensors {
			unweighted += t.Unweighted()
		}
	}
	if unweighted > 0 {
		add("%s quantized without weights, because theirs were all zero", plural(unweighted, "block"))
	}
	for _, line := range lines {
		if err := a.printf("  %s\n", clean(line)); err != nil {
			return err
		}
	}
	return nil
}

// misfitLines counts the tensors that did not get the wanted type, by reason.
func misfitLines(c *convert.Conversion) []string {
	names := make(map[convert.Reason][]string)
	var narrowed []string
	total := 0
	for _, out := range c.Outputs {
		for _, t := range out.Tensors {
			total++
			switch r := t.Decision.Reason; {
			case r == convert.ReasonIntegers && t.From != t.To:
				narrowed = append(narrowed, t.Name)
			case r != convert.ReasonNone:
				names[r] = append(names[r], t.Name)
			}
		}
	}
	words := map[convert.Reason]string{
		convert.ReasonRule: "kept by a rule", convert.ReasonName: "kept for their names", convert.ReasonOneRow: "kept as they have one row",
		convert.ReasonBlock: "kept as their rows do not fit the blocks", convert.ReasonFallback: "of a fallback type as their rows do not fit the blocks",
		convert.ReasonIntegers: "kept as they hold no real numbers", convert.ReasonEmpty: "empty", convert.ReasonOpaque: "kept with their scales",
	}
	var lines []string
	for _, r := range slices.Sorted(maps.Keys(names)) {
		list := names[r]
		lines = append(lines, fmt.Sprintf("%d of %s %s: %s", len(list), plural(total, "tensor"), words[r], convert.List(list)))
	}
	if n := len(narrowed); n > 0 {
		lines = append(lines, fmt.Sprintf("%d of %s integers of another size: %s", n, plural(total, "tensor"), convert.List(narrowed)))
	}
	return lines
}

func scaledLines(c *convert.Conversion) []string {
	var lines []string
	for _, comp := range c.Components() {
		if comp.Scaled == nil {
			continue
		}
		for scheme, n := range comp.Scaled.Schemes() {
			lines = append(lines, fmt.Sprintf("multiplied in: the scales of %s stored as %s", plural(n, "weight"), scheme))
		}
		if n := len(comp.Scaled.Dropped); n > 0 {
			lines = append(lines, fmt.Sprintf("left out: %s of scaled weights: %s", plural(n, "companion"), convert.List(comp.Scaled.Dropped)))
		}
	}
	slices.Sort(lines)
	return lines
}

// lossLines reports numbers that the types could not hold.
func lossLines(out *convert.Output) []string {
	var lines []string
	for _, t := range out.Tensors {
		if n := t.Overflow(); n > 0 {
			lines = append(lines, fmt.Sprintf("too large for %s: %s of tensor %q became infinite; use bf16 or f32 for it", t.To, plural(n, "number"), t.Name))
		}
		if n := t.Cut(); n > 0 {
			lines = append(lines, fmt.Sprintf("too large for %s: %s of tensor %q lost high bits, as with sd-cli", t.To, plural(n, "integer"), t.Name))
		}
	}
	return lines
}

// explain prints what decided the types of the named tensors.
func (a *app) explain(c *convert.Conversion, names []string, asJSON bool) error {
	var found []*convert.Tensor
	for _, name := range names {
		n := len(found)
		for _, out := range c.Outputs {
			for _, t := range out.Tensors {
				if t.Name == name || slices.Contains(t.Inputs, name) {
					found = append(found, t)
				}
			}
		}
		if len(found) == n {
			return fmt.Errorf("no tensor %q among the outputs or inputs (it may be left out)", name)
		}
	}
	if asJSON {
		list := make([]planTensor, len(found))
		for i, t := range found {
			list[i] = tensorJSON(t)
		}
		return a.printJSON(list)
	}
	for _, t := range found {
		d := &t.Decision
		wanted, by := "no type", "there is no --type and no rule finds the name"
		if d.Wanted != tensor.Invalid {
			wanted, by = d.Wanted.String(), "by --type, as no rule finds the name"
		}
		if d.Rule != nil {
			wanted, by = d.Rule.TypeName(), fmt.Sprintf("by rule %s (%s)", d.Rule.Text, d.Rule.Origin)
		}
		text := fmt.Sprintf("%s\n  stored as %s, %s%s\n  wanted: %s, %s\n", t.Name, quoted(t.Inputs), t.From, tensor.ShapeString(t.Shape), wanted, by)
		if s := d.Explain(); s != "" {
			text += fmt.Sprintf("  but: %s\n", s)
		}
		text += fmt.Sprintf("  becomes: %s, %d bytes\n", t.To, t.Bytes)
		for _, line := range strings.SplitAfter(text, "\n") {
			if line = strings.TrimSuffix(line, "\n"); line == "" {
				continue
			}
			if err := a.println(clean(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

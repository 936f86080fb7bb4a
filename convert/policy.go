package convert

import (
	"fmt"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// Policy decides the type of every output tensor.
type Policy struct {
	// Type is what tensors become that no rule names; Invalid keeps their own.
	Type tensor.DType
	// Rules are looked through in order; the first that finds the final name decides.
	Rules []Rule
	// Fallback lists types to try, in order, for a row that the wanted type's
	// blocks do not fit.
	Fallback []tensor.DType
	// Compat decides as stable-diffusion.cpp does: a rule only changes the wanted
	// type, one-row tensors are like others, and there is no fallback.
	Compat bool
}

// Subject is what a decision is about.
type Subject struct {
	Name    string       // final
	Stored  tensor.DType // type in the input
	Own     tensor.DType // type it has in the output if nothing else is wanted; Invalid if the output cannot hold it
	Shape   []int64
	Scaled  bool // stored as small numbers with scales, which have been multiplied in
	Opaque  bool // scaled, and to be passed on as it is
	Numbers bool // its values can be read as float32
}

// Decision is the type of one output tensor and why.
type Decision struct {
	Type   tensor.DType
	Wanted tensor.DType // by --type or a rule; Invalid if none
	Rule   *Rule        // that decided; nil if none did
	Reason Reason
	Detail string // what the reason is about: a part of the name, a size
}

// Reason says why a tensor does not have the wanted type.
type Reason uint8

// Reasons. The zero value means that the tensor has the wanted type, or that
// none was wanted.
const (
	ReasonNone      Reason = iota
	ReasonRule             // a rule keeps it
	ReasonName             // its name ends in or contains a part that stays precise
	ReasonOneRow           // 1-D, or all axes but the last are 1
	ReasonBlock            // its rows are not whole blocks
	ReasonFallback         // the same, and a fallback type took over
	ReasonIntegers         // it holds no real numbers
	ReasonEmpty            // it has no elements
	ReasonOpaque           // its scales are kept beside it
	ReasonContainer        // the output format has no such type
)

var reasonNames = [...]string{"", "rule", "name", "one-row", "block", "fallback", "not-float", "empty", "scaled", "format"}

// String returns a word for the reason, as JSON output has it.
func (r Reason) String() string { return reasonNames[r] }

// Explain returns the reason in words.
func (d *Decision) Explain() string {
	switch d.Reason {
	case ReasonRule:
		return "a rule keeps it"
	case ReasonName:
		return "its name " + d.Detail
	case ReasonOneRow:
		return "it has one row"
	case ReasonBlock:
		return d.Detail
	case ReasonFallback:
		return d.Detail + "; fell back to " + d.Type.String()
	case ReasonIntegers:
		return "it does not hold real numbers"
	case ReasonEmpty:
		return "it is empty"
	case ReasonOpaque:
		return "its scales are kept beside it"
	case ReasonContainer:
		return "the output format has no " + d.Detail
	}
	return ""
}

// preciseEndings and preciseParts are the names that stable-diffusion.cpp never
// converts (spec: its tensor_should_be_converted), in its order.
var (
	preciseEndings = []string{".bias", ".scale", ".weight_scale"}
	preciseParts   = []string{
		"img_in.", "txt_in.", "time_in.", "vector_in.", "guidance_in.", "final_layer.",
		"x_embedder.", "t_embedder.", "y_embedder.", "pos_embed", "context_embedder.",
		"time_embed.", "label_emb.", "embedding",
	}
)

// Match returns the first rule that finds the name, or nil.
func (p *Policy) Match(name string) *Rule {
	for i := range p.Rules {
		if p.Rules[i].Pattern.MatchString(name) {
			return &p.Rules[i]
		}
	}
	return nil
}

// Decide returns the type of one tensor.
func (p *Policy) Decide(s Subject) Decision {
	d := Decision{Type: s.Own, Wanted: p.Type}
	if rule := p.Match(s.Name); rule != nil {
		d.Rule, d.Wanted = rule, rule.Type
		if rule.Keep() {
			d.Reason = ReasonRule
			return d
		}
	}
	if d.Wanted == tensor.Invalid {
		return d
	}
	if d.Reason, d.Detail = p.refuse(s, &d); d.Reason != ReasonNone {
		return d
	}
	if fits(s.Shape, d.Wanted) {
		d.Type = d.Wanted
		return d
	}
	cols := tensor.Info{Shape: s.Shape}.Cols()
	d.Reason = ReasonBlock
	d.Detail = fmt.Sprintf("its rows of %d are not a multiple of %s's block of %d", cols, d.Wanted, d.Wanted.Block())
	if p.Compat {
		return d
	}
	for _, f := range p.Fallback {
		if fits(s.Shape, f) {
			d.Type, d.Reason = f, ReasonFallback
			break
		}
	}
	return d
}

// refuse returns why a tensor cannot or should not have the wanted type, shape
// apart.
func (p *Policy) refuse(s Subject, d *Decision) (Reason, string) {
	elements, err := tensor.Elements(s.Shape)
	switch {
	case s.Opaque:
		return ReasonOpaque, ""
	case !s.Numbers:
		return ReasonIntegers, ""
	case err == nil && elements == 0 && d.Wanted.IsQuantized():
		return ReasonEmpty, ""
	}
	// What cannot stay as it is takes the wanted type, whatever its name.
	named := d.Rule != nil && !p.Compat || s.Own == tensor.Invalid
	if named || !p.Compat && d.Wanted == s.Own {
		return ReasonNone, ""
	}
	// The neighbour looks at the block first; the outcome is the same, the
	// reason it would give is not.
	if p.Compat && !fits(s.Shape, d.Wanted) {
		return ReasonNone, ""
	}
	if part := precise(s.Name); part != "" {
		return ReasonName, part
	}
	if !p.Compat && coarse(d.Wanted) && (tensor.Info{Shape: s.Shape}).Rows() <= 1 {
		return ReasonOneRow, ""
	}
	return ReasonNone, ""
}

// coarse reports whether a type is too small for norms and biases.
func coarse(d tensor.DType) bool {
	return d.IsQuantized() || d.IsFloat() && d.BlockBytes() < 2*d.Block()
}

// precise says in which way a name is one of those that stay as they are; "" if
// it is not.
func precise(name string) string {
	for _, end := range preciseEndings {
		if strings.HasSuffix(name, end) {
			return "ends in " + end
		}
	}
	for _, part := range preciseParts {
		if strings.Contains(name, part) {
			return "contains " + part
		}
	}
	return ""
}

// fits reports whether rows of the shape are whole blocks of the type.
func fits(shape []int64, d tensor.DType) bool {
	return !d.IsQuantized() || tensor.Info{Shape: shape}.Cols()%d.Block() == 0
}

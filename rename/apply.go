package rename

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// CollisionError reports two inputs that would get one name.
type CollisionError struct {
	Name string    // the common new name
	From [2]string // the old names
}

func (e *CollisionError) Error() string {
	return fmt.Sprintf("tensors %q and %q would both be called %q", e.From[0], e.From[1], e.Name)
}

// FuseError reports parts of a fused tensor that do not fit together.
type FuseError struct {
	Name string // of the fused tensor
	Part string // the part that does not fit
	Msg  string // what was found and expected
}

func (e *FuseError) Error() string {
	return fmt.Sprintf("fuse %q into %q: %s", e.Part, e.Name, e.Msg)
}

// Renamed is a tensor under its new name.
type Renamed struct {
	tensor.Tensor
	// From are the indices of the input tensors it is made of, in order.
	From []int
	// Swapped: the halves of its first axis have changed places.
	Swapped bool
}

// Result is what Apply made of a checkpoint.
type Result struct {
	Tensors []Renamed
	// Incomplete lists tensors left under their old names because others that
	// belong to the same fused tensor are missing.
	Incomplete []string

	changed int
}

// Changed counts the tensors that have another name than what they are made of.
func (r *Result) Changed() int { return r.changed }

// Rename returns the original (LDM) name of a tensor that is only renamed; of a
// part of a fused tensor, the fused tensor's name.
func (f Family) Rename(name string) string { return f.resolve(name).name }

// resolve is Rename with what else has to happen to the tensor.
func (f Family) resolve(name string) target {
	if f == ESRGAN {
		return target{name: run(esrganStages, name)}
	}
	if out, ok := renameIPAdapter(f, name); ok {
		return target{name: out}
	}
	name = f.prefix(name)
	if f.In(GroupQwenVL) {
		name = compatQwen3VL(name)
	}
	for _, p := range []string{prefixDiffusion + "uncond.", prefixDiffusion, prefixHighNoise} {
		if rest, ok := strings.CutPrefix(name, p); ok && f.row().diffusion != nil {
			return f.row().diffusion.resolve(rest).under(p)
		}
	}
	for _, p := range encoderPrefixes {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return encoderTable(rest).resolve(rest).under(p)
		}
	}
	name = firstStage(f, name, func(t *table, name string) string { return t.resolve(name).name })
	if out, ok := photoMaker.whole(name); ok {
		name = out
	}
	return target{name: renameControlNet(f, name)}
}

// under puts a prefix before all names of a target.
func (t target) under(prefix string) target {
	t.name = prefix + t.name
	if t.group != "" {
		t.group = prefix + t.group
	}
	if t.unless != "" {
		t.unless = prefix + t.unless
	}
	return t
}

// prefix replaces the spelling of the component, longest first.
func (f Family) prefix(name string) string {
	row := f.row()
	homes := row.encoders
	for i, h := range homes {
		if h == "" {
			homes[i] = homesCLIP2[min(i, 1)]
			if i == 2 {
				homes[i] = prefixT5
			}
		}
	}
	clipL, clipG := prefixClipL, prefixClipG
	if f.In(GroupUNet) {
		clipL, clipG = prefixCondHF, prefixCond1HF
	}
	open0, open1 := prefixCond, prefixCond1
	if f == SDXLRefiner {
		open1 = prefixCond
	}
	return pairs{
		{"diffusion_model.", prefixDiffusion},
		{"unet.", prefixDiffusion},
		{"transformer.", prefixDiffusion},
		{"vae.", prefixVAE},
		{"text_encoder_2.", homes[1]},
		{"text_encoder.2.", homes[1]},
		{"text_encoder_3.", homes[2]},
		{"text_encoder.3.", homes[2]},
		{"text_encoder.", homes[0]},
		{"te.1.", homes[1]},
		{"te1.", homes[0]},
		{"te2.", homes[1]},
		{"te3.", homes[2]},
		{"te.", homes[0]},
		{"clip_l.", clipL},
		{"clip_g.", clipG},
		{"clip_vision.", prefixCondHF},
		{"conditioner.embedders.0.open_clip.", open0},
		{prefixEmbedders0, open0},
		{prefixEmbedders1, open1},
		// What convert's options put before encoders, at home in the UNet families.
		{prefixClipL, clipL},
		{prefixClipG, clipG},
	}.firstPrefix(name)
}

// Apply renames all tensors of a family's checkpoint, fuses split projections
// and swaps the halves of those that diffusers stores the other way round. Data
// is not read: what changes becomes a view. The order is that of the inputs, a
// fused tensor standing where its first part stood.
//
// Errors are a *CollisionError or a *FuseError.
func Apply(f Family, in []tensor.Tensor) (*Result, error) {
	names := make([]string, len(in))
	for i, t := range in {
		names[i] = t.Name
		if f != ESRGAN {
			names[i] = f.prefix(t.Name)
		}
	}
	return apply(in, names, f.resolve)
}

func apply(in []tensor.Tensor, names []string, resolve func(string) target) (*Result, error) {
	targets := make([]target, len(in))
	groups := make(map[string][]int) // by fused name: inputs by part, -1 for none
	taken := make(map[string]bool)   // new names of what is only renamed, for flipUnless
	for i, name := range names {
		t := resolve(name)
		targets[i] = t
		if t.of == 0 {
			taken[t.name] = true
			continue
		}
		parts := groups[t.name]
		if parts == nil {
			parts = slices.Repeat([]int{-1}, t.of)
			groups[t.name] = parts
		}
		if j := parts[t.part]; j >= 0 {
			return nil, &CollisionError{Name: fmt.Sprintf("part %d of %s", t.part, t.name), From: [2]string{names[j], name}}
		}
		parts[t.part] = i
	}
	for _, name := range names {
		taken[name] = true
	}
	r := &Result{}
	seen := make(map[string]int)
	add := func(t Renamed) error {
		if j, ok := seen[t.Name]; ok {
			return &CollisionError{Name: t.Name, From: [2]string{names[j], names[t.From[0]]}}
		}
		seen[t.Name] = t.From[0]
		if t.Name != in[t.From[0]].Name {
			r.changed++
		}
		r.Tensors = append(r.Tensors, t)
		return nil
	}
	done := make(map[string]bool)
	for i, t := range targets {
		out := Renamed{Tensor: in[i], From: []int{i}}
		out.Name = t.name
		switch {
		case t.of > 0:
			parts := groups[t.name]
			if slices.Contains(parts, -1) {
				out.Name = names[i]
				r.Incomplete = append(r.Incomplete, names[i])
				break
			}
			if done[t.name] {
				continue
			}
			done[t.name] = true
			var err error
			if out, err = fuseParts(in, targets, parts); err != nil {
				return nil, err
			}
		case t.flip && !taken[t.unless]:
			swapped, err := swapHalves(in[i])
			if err != nil {
				return nil, err
			}
			out.Source, out.Swapped = swapped, true
		case t.flat:
			n, err := in[i].Elements()
			if err != nil {
				return nil, &FuseError{Name: t.name, Part: in[i].Name, Msg: err.Error()}
			}
			out.Shape = []int64{n}
		}
		if err := add(out); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// fuseParts joins the parts of a tensor along axis 0.
func fuseParts(in []tensor.Tensor, targets []target, parts []int) (Renamed, error) {
	first := in[parts[0]]
	name := targets[parts[0]].name
	out := Renamed{Tensor: first, From: slices.Clone(parts)}
	out.Name = name
	out.Shape = slices.Clone(first.Shape)
	var sources []tensor.Source
	for k, i := range parts {
		t := in[i]
		fail := func(format string, args ...any) (Renamed, error) {
			return Renamed{}, &FuseError{Name: name, Part: t.Name, Msg: fmt.Sprintf(format, args...)}
		}
		n, err := t.Elements()
		switch {
		case err != nil:
			return fail("%v", err)
		case n == 1 && targets[i].tail != "weight" && targets[i].tail != "bias":
			// Joined, these would read as one scale for each row or each third.
			return fail("it is one number for the whole part, which the fused tensor has no place for; multiply the weights by their scales, or keep the names")
		case len(t.Shape) == 0:
			return fail("a single number has no rows to join")
		case t.DType != first.DType:
			return fail("found %s, want %s as in %q", t.DType, first.DType, first.Name)
		case len(t.Shape) != len(first.Shape) || !slices.Equal(t.Shape[1:], first.Shape[1:]) || !targets[i].ragged && t.Shape[0] != first.Shape[0]:
			return fail("found shape %s, want %s as in %q", tensor.ShapeString(t.Shape), tensor.ShapeString(first.Shape), first.Name)
		}
		if _, err := t.Bytes(); err != nil {
			return fail("%v", err)
		}
		if k > 0 {
			out.Shape[0] += t.Shape[0]
		}
		sources = append(sources, t.Source)
	}
	out.Source = join(sources...)
	return out, nil
}

// swapHalves returns the tensor with the halves of axis 0 exchanged.
func swapHalves(t tensor.Tensor) (tensor.Source, error) {
	half := tensor.Info{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape)}
	if len(t.Shape) == 0 || t.Shape[0]%2 != 0 {
		return nil, &FuseError{Name: t.Name, Part: t.Name, Msg: fmt.Sprintf("shape %s has no two halves to swap", tensor.ShapeString(t.Shape))}
	}
	half.Shape[0] /= 2
	n, err := half.Bytes()
	if err != nil {
		return nil, &FuseError{Name: t.Name, Part: t.Name, Msg: fmt.Sprintf("half of it cannot be cut off: %v", err)}
	}
	return join(cut(t.Source, n, 2*n), cut(t.Source, 0, n)), nil
}

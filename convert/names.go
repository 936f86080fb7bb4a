package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// gather lists all components' tensors under their final names, without those
// that are not wanted.
func (c *Conversion) gather(o *Options) error {
	c.detect(o)
	var files fileNumbers
	var raw []*item
	for _, comp := range c.components {
		raw = append(raw, comp.items(c.prefix(comp, o), &files)...)
	}
	raw = c.dropUnused(raw, o)
	items, err := c.merge(raw)
	if err != nil {
		return err
	}
	if c.items, err = c.name(items, o); err != nil {
		return err
	}
	c.filter(o)
	return nil
}

// detect finds out what the inputs are, from the names as stable-diffusion.cpp's
// convert mode would see them, and says so if an input is not what it is given as.
func (c *Conversion) detect(o *Options) {
	var all []tensor.Info
	for _, comp := range c.components {
		infos := infosOf(comp.Tensors)
		c.Warnings = append(c.Warnings, mistaken(comp, rename.Contents(infos))...)
		prefix := comp.Role.Prefix(rename.Unknown, true)
		if o.Policy.Compat && comp.Format == FormatSafetensors {
			slices.SortFunc(infos, func(a, b tensor.Info) int { return strings.Compare(a.Name, b.Name) })
		}
		for _, info := range infos {
			if !strings.HasPrefix(info.Name, prefix) {
				info.Name = prefix + info.Name
			}
			all = append(all, info)
		}
	}
	c.Found = rename.Detect(all)
	if o.Policy.Compat {
		c.Found.Family = rename.DetectCompat(all)
	}
	if o.Family.Known() {
		c.Found = rename.Found{Family: o.Family, Evidence: []string{"--family"}, Prediction: o.Family.Prediction()}
	}
	c.Family = c.Found.Family
	if !c.Family.Known() && o.Names != NamesKeep {
		c.warn("the family of the model is not known, so that only the names of text encoders and VAEs are changed (--family names it)")
	}
}

func infosOf(tensors []tensor.Tensor) []tensor.Info {
	infos := make([]tensor.Info, len(tensors))
	for i, t := range tensors {
		infos[i] = t.Info
	}
	return infos
}

// fitting lists what a component of a role should hold; roles that are not in
// it may hold anything.
var fitting = map[Role][]rename.Content{
	RoleClipL:      {rename.ContentCLIP},
	RoleClipG:      {rename.ContentCLIP},
	RoleClipVision: {rename.ContentCLIPVision},
	RoleT5:         {rename.ContentT5},
	RoleLLM:        {rename.ContentLLM},
	RoleDiffusion:  {rename.ContentDiffusion},
	RoleHighNoise:  {rename.ContentDiffusion},
	RoleUncond:     {rename.ContentDiffusion},
	RoleVAE:        {rename.ContentVAE, rename.ContentTinyVAE},
	RoleControlNet: {rename.ContentControlNet},
}

// mistaken warns of a component that is something else than it is given as.
func mistaken(comp *Component, found []rename.Content) []string {
	if len(found) == 1 && found[0] == rename.ContentLoRA {
		return []string{fmt.Sprintf("%s is a LoRA, not a model: it changes the weights of one, and is only converted as it stands", comp.Path)}
	}
	want := fitting[comp.Role]
	if len(want) == 0 || len(found) == 0 {
		return nil
	}
	words := make([]string, len(found))
	for i, f := range found {
		if slices.Contains(want, f) {
			return nil
		}
		words[i] = string(f)
	}
	return []string{fmt.Sprintf("%s is given as --%s, but looks like: %s", comp.Path, comp.Role, strings.Join(words, ", "))}
}

// prefix returns what goes before a component's names. A diffusion model given
// as a whole model gets its prefix where names are changed, because the name
// tables begin there.
func (c *Conversion) prefix(comp *Component, o *Options) string {
	if comp.Role == RoleModel && o.Names != NamesKeep && !o.Policy.Compat {
		infos := infosOf(comp.Tensors)
		if f := rename.Detect(infos); f.Bare && slices.Equal(rename.Contents(infos), []rename.Content{rename.ContentDiffusion}) {
			return diffusionPrefix
		}
	}
	return comp.Role.Prefix(c.Family, o.Policy.Compat)
}

// dropUnused leaves out what no runtime reads, by any of its names.
func (c *Conversion) dropUnused(items []*item, o *Options) []*item {
	return slices.DeleteFunc(items, func(it *item) bool {
		if o.Policy.Compat && it.DType == tensor.U8 {
			c.Unused = append(c.Unused, it.Name) // its safetensors reader passes them over
			return true
		}
		if o.KeepUnused || !rename.Ignored(it.stored()) && !rename.Ignored(it.Name) && !rename.Ignored(c.Family.RenameCompat(it.Name)) {
			return false
		}
		c.Unused = append(c.Unused, it.Name)
		return true
	})
}

// merge lets a later component's tensor take the place of an earlier one's.
func (c *Conversion) merge(items []*item) ([]*item, error) {
	at := make(map[string]int, len(items))
	var out []*item
	for _, it := range items {
		i, there := at[it.Name]
		if !there {
			at[it.Name] = len(out)
			out = append(out, it)
			continue
		}
		old := out[i]
		if old.component == it.component {
			return nil, fmt.Errorf("%s: tensors %q and %q would both be called %q", it.component.Path, old.stored(), it.stored(), it.Name)
		}
		c.warn("tensor %q of %s replaces the one of %s", it.Name, it.component.Path, old.component.Path)
		out[i] = it
	}
	return out, nil
}

// name gives every tensor its final name.
func (c *Conversion) name(items []*item, o *Options) ([]*item, error) {
	if o.Names == NamesKeep {
		return items, nil
	}
	if o.Policy.Compat {
		for _, it := range items {
			it.Name = c.Family.RenameCompat(it.Name)
		}
		return c.overwrite(items), nil
	}
	tensors := make([]tensor.Tensor, len(items))
	for i, it := range items {
		tensors[i] = it.Tensor
	}
	r, err := rename.Apply(c.Family, tensors)
	if err != nil {
		return nil, err
	}
	if n := len(r.Incomplete); n > 0 {
		c.warn("%d tensors keep their names, because other parts of the same tensor are missing: %s", n, List(r.Incomplete))
	}
	named := make([]*item, len(r.Tensors))
	for i, t := range r.Tensors {
		named[i] = combine(items, &t)
	}
	if o.Names == NamesComfy {
		stripLone(named)
	}
	return named, nil
}

// combine makes one item of the inputs of a renamed tensor.
func combine(items []*item, t *rename.Renamed) *item {
	first := items[t.From[0]]
	if len(t.From) == 1 {
		it := *first
		it.Tensor = t.Tensor
		return &it
	}
	it := &item{Tensor: t.Tensor, component: first.component, order: first.order}
	for _, i := range t.From {
		part := items[i]
		it.inputs = append(it.inputs, part.inputs...)
		it.parts = append(it.parts, part.parts...)
		it.scaled = it.scaled || part.scaled
		it.opaque = it.opaque || part.opaque
	}
	return it
}

// overwrite keeps one tensor of each name, the last in the place of the first,
// as stable-diffusion.cpp does; it says so.
func (c *Conversion) overwrite(items []*item) []*item {
	at := make(map[string]int, len(items))
	var out []*item
	for _, it := range items {
		if i, there := at[it.Name]; there {
			c.warn("tensor %q, renamed from %q, replaces the one renamed from %q", it.Name, it.stored(), out[i].stored())
			out[i] = it
			continue
		}
		at[it.Name] = len(out)
		out = append(out, it)
	}
	return out
}

// stripLone takes the diffusion model's prefix off if nothing else is there:
// ComfyUI's loaders want a lone diffusion model without it.
func stripLone(items []*item) {
	for _, it := range items {
		if !strings.HasPrefix(it.Name, diffusionPrefix) {
			return
		}
	}
	for _, it := range items {
		it.Name = strings.TrimPrefix(it.Name, diffusionPrefix)
	}
}

// filter applies Include and Exclude.
func (c *Conversion) filter(o *Options) {
	finds := func(list []*regexp.Regexp, name string) bool {
		return slices.ContainsFunc(list, func(re *regexp.Regexp) bool { return re.MatchString(name) })
	}
	before := len(c.items)
	c.items = slices.DeleteFunc(c.items, func(it *item) bool {
		return len(o.Include) > 0 && !finds(o.Include, it.Name) || finds(o.Exclude, it.Name)
	})
	c.Excluded = before - len(c.items)
}

// canonical returns the names that importance matrices may have for tensors.
func (c *Conversion) canonical(names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, rename.CanonicalNames(c.Family, name)...)
	}
	return out
}

// architecture returns the general.architecture of a file; "" if it is not known.
func (c *Conversion) architecture(g *group, o *Options) string {
	infos := make([]tensor.Info, len(g.items))
	for i, it := range g.items {
		infos[i] = it.Info
	}
	found := rename.Detect(infos)
	f := found.Family
	if found.Diffusers && !o.Policy.Compat {
		advice := "--names ldm changes them"
		if o.Names != NamesKeep {
			advice = "sdtool has no table for this family"
		}
		c.warn("the names follow the diffusers layout, which loaders of GGUF files do not read; %s", advice)
	}
	if o.Family.Known() && (g.role == RoleModel || g.role == RoleDiffusion) {
		f = o.Family
	}
	return f.Architecture()
}

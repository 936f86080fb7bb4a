package rename

import (
	"strconv"
	"strings"
	"sync"
)

// pair is one replacement of text in a name.
type pair struct{ from, to string }

type pairs []pair

// eachOnce goes through the pairs in order and replaces the first occurrence of
// each; later pairs see what earlier ones did.
func (p pairs) eachOnce(name string) string {
	for _, r := range p {
		name = strings.Replace(name, r.from, r.to, 1)
	}
	return name
}

// firstPrefix replaces the first matching prefix and stops.
func (p pairs) firstPrefix(name string) string {
	for _, r := range p {
		if rest, ok := strings.CutPrefix(name, r.from); ok {
			return r.to + rest
		}
	}
	return name
}

// whole looks the whole name up.
func (p pairs) whole(name string) (string, bool) {
	for _, r := range p {
		if r.from == name {
			return r.to, true
		}
	}
	return name, false
}

// blockMap renames the tensors of numbered blocks: from + index + "." + tail.
// An unknown tail leaves the whole name alone.
type blockMap struct {
	from, to string
	tails    pairs
}

func (b blockMap) apply(name string) string {
	rest, ok := strings.CutPrefix(name, b.from)
	if !ok {
		return name
	}
	index, tail, ok := strings.Cut(rest, ".")
	if !ok {
		return name
	}
	if to, known := b.tails.whole(tail); known {
		return b.to + index + "." + to
	}
	return name
}

// stage is one step of a name table. Its parts run in the order of the fields.
type stage struct {
	given  string // run only if the name given to the table contains this
	now    string // run only if the name as it is now contains this
	exact  pairs  // whole names
	stop   bool   // a hit in exact ends the table
	blocks []blockMap
	prefix pairs          // first match only
	keys   func() *keySet // first match only, for sets too large to walk
	substr pairs          // first occurrence of each
	add    string         // put in front unless it is there
}

func (s *stage) apply(given, name string) (out string, done bool) {
	if !strings.Contains(given, s.given) || !strings.Contains(name, s.now) {
		return name, false
	}
	if to, ok := s.exact.whole(name); ok {
		name = to
		if s.stop {
			return name, true
		}
	}
	for _, b := range s.blocks {
		name = b.apply(name)
	}
	name = s.prefix.firstPrefix(name)
	if s.keys != nil {
		name = s.keys().replace(name)
	}
	name = s.substr.eachOnce(name)
	if !strings.HasPrefix(name, s.add) {
		name = s.add + name
	}
	return name, false
}

// table is the names of one kind of component in both flavours.
type table struct {
	compat []stage // as stable-diffusion.cpp renames
	rules  []rule  // default flavour: matched first, a hit decides
	stages []stage // default flavour where no rule matches

	index func() ruleIndex
}

func (t *table) renameCompat(name string) string { return run(t.compat, name) }

func run(stages []stage, name string) string {
	given := name
	for i := range stages {
		var done bool
		if name, done = stages[i].apply(given, name); done {
			break
		}
	}
	return name
}

// target is where a rule sends one tensor.
type target struct {
	name     string
	part, of int    // position among the tensors fused into name; of is 0 for a plain rename
	group    string // the part's place without its tail, for messages: "transformer_blocks.3.attn.to_q"
	tail     string // "weight", "bias", "weight_scale", ...
	ragged   bool
	flip     bool   // swap the two halves of axis 0
	unless   string // do not swap if a tensor of this name exists
	flat     bool   // all axes become one
}

// resolve returns where the default flavour sends a name.
func (t *table) resolve(name string) target {
	if t.index != nil {
		if hit, ok := t.index().match(name); ok {
			return hit
		}
	}
	return target{name: run(t.stages, name)}
}

// newTable returns a table whose compat flavour is the rules expanded to the
// block counts stable-diffusion.cpp knows, followed by more stages, and whose
// default flavour is the rules without limits, followed by the same stages.
func newTable(limits map[string]int, rules []rule, stages ...stage) table {
	compat := append([]stage{{keys: sync.OnceValue(func() *keySet { return expand(rules, limits) })}}, stages...)
	return table{
		compat: compat,
		rules:  rules,
		stages: stages,
		index:  sync.OnceValue(func() ruleIndex { return newRuleIndex(rules) }),
	}
}

// first puts rules before a table, for the default flavour only.
func (t table) first(rules []rule) table {
	t.rules = append(rules, t.rules...)
	all := t.rules
	t.index = sync.OnceValue(func() ruleIndex { return newRuleIndex(all) })
	return t
}

// then adds stages that only the default flavour has.
func (t table) then(stages ...stage) table {
	t.stages = append(stages, t.stages...)
	return t
}

// stagesTable returns a table that is the same in both flavours.
func stagesTable(stages ...stage) table { return table{compat: stages, stages: stages} }

// Placeholders of rule patterns.
const (
	anyBlock = "{i}" // a block number
	anyKind  = "{s}" // last part of the name: weight, bias and their companions
	anyTail  = "{*}" // whatever follows
)

// rule sends one tensor name to another.
type rule struct {
	from, to string
	part, of int
	ragged   bool // may differ from part 0 in its number of rows
	flip     bool
	unless   string
	flat     bool // all axes become one
	ours     bool // not known to stable-diffusion.cpp
}

func move(from, to string) []rule { return []rule{{from: from, to: to}} }

// fuse concatenates the parts along axis 0 into one tensor.
func fuse(to string, parts ...string) []rule {
	rules := make([]rule, len(parts))
	for i, from := range parts {
		rules[i] = rule{from: from, to: to, part: i, of: len(parts)}
	}
	return rules
}

// ragged lets the parts from the given one on have other numbers of rows than
// the first.
func ragged(parts []rule, from int) []rule {
	for i := range parts[from:] {
		parts[from+i].ragged = true
	}
	return parts
}

// flip swaps the two halves of axis 0.
func flip(from, to string) []rule { return []rule{{from: from, to: to, flip: true}} }

// flatten makes all axes one; the bytes stay.
func flatten(from, to string) []rule { return []rule{{from: from, to: to, flat: true}} }

// flipUnless swaps the halves where the block has no tensor named unless.
func flipUnless(from, to, unless string) []rule {
	return []rule{{from: from, to: to, flip: true, unless: unless}}
}

func ruleList(groups ...[]rule) []rule {
	var all []rule
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// ours marks rules that exist only in the default flavour.
func ours(groups ...[]rule) []rule {
	all := ruleList(groups...)
	for i := range all {
		all[i].ours = true
	}
	return all
}

// keySet is a set of full names matched as prefixes. No key of a set is a
// prefix of another one, so at most one matches.
type keySet struct {
	to      map[string]string
	lengths []int
}

func (k *keySet) put(from, to string) {
	if _, ok := k.to[from]; !ok && !containsInt(k.lengths, len(from)) {
		k.lengths = append(k.lengths, len(from))
	}
	k.to[from] = to
}

func containsInt(list []int, n int) bool {
	for _, have := range list {
		if have == n {
			return true
		}
	}
	return false
}

func (k *keySet) replace(name string) string {
	for _, n := range k.lengths {
		if n > len(name) {
			continue
		}
		if to, ok := k.to[name[:n]]; ok {
			return to + name[n:]
		}
	}
	return name
}

// expand writes the rules out as the keys stable-diffusion.cpp builds: each
// block number up to its limit, weight and bias, and ".n" behind the suffix for
// the n-th part of a fused tensor.
func expand(rules []rule, limits map[string]int) *keySet {
	k := &keySet{to: make(map[string]string)}
	for _, r := range rules {
		if r.ours {
			continue
		}
		suffix := ""
		if r.part > 0 {
			suffix = "." + strconv.Itoa(r.part)
		}
		putKinds := func(from, to string) {
			from, to = strings.TrimSuffix(from, anyTail), strings.TrimSuffix(to, anyTail)
			if !strings.Contains(from, anyKind) {
				k.put(from, to+suffix)
				return
			}
			for _, kind := range []string{"weight", "bias"} {
				k.put(strings.Replace(from, anyKind, kind, 1), strings.Replace(to, anyKind, kind, 1)+suffix)
			}
		}
		stem, _, numbered := strings.Cut(r.from, "."+anyBlock)
		if !numbered {
			putKinds(r.from, r.to)
			continue
		}
		for i := range limits[stem] {
			n := strconv.Itoa(i)
			putKinds(strings.Replace(r.from, anyBlock, n, 1), strings.Replace(r.to, anyBlock, n, 1))
		}
	}
	return k
}

// ruleIndex finds the rule for a name by what the name looks like with its
// block number and its tail taken out.
type ruleIndex map[string]rule

func newRuleIndex(rules []rule) ruleIndex {
	index := make(ruleIndex, len(rules))
	for _, r := range rules {
		index[indexKey(r.from)] = r
	}
	return index
}

// indexKey maps both open forms to one key: "a.b.{s}", "a.b.{*}" and "a.b{*}".
func indexKey(from string) string {
	if stem, ok := strings.CutSuffix(from, anyTail); ok {
		return strings.TrimSuffix(stem, ".") + "." + anyKind
	}
	return from
}

func (x ruleIndex) match(name string) (target, bool) {
	try := func(name, number string) (target, bool) {
		if r, ok := x[name]; ok {
			return r.target(number, ""), true
		}
		for cut := strings.LastIndexByte(name, '.'); cut > 0; cut = strings.LastIndexByte(name[:cut], '.') {
			tail := name[cut+1:]
			r, ok := x[name[:cut+1]+anyKind]
			if ok && (strings.HasSuffix(r.from, anyTail) || !strings.Contains(tail, ".")) {
				return r.target(number, tail), true
			}
		}
		return target{}, false
	}
	if hit, ok := try(name, ""); ok {
		return hit, true
	}
	for start := 0; ; {
		dot := strings.IndexByte(name[start:], '.')
		if dot < 0 {
			return target{}, false
		}
		begin := start + dot + 1
		end := begin
		for end < len(name) && name[end] >= '0' && name[end] <= '9' {
			end++
		}
		if end > begin && end < len(name) && name[end] == '.' {
			return try(name[:begin]+anyBlock+name[end:], name[begin:end])
		}
		start = begin
	}
}

func (r rule) target(number, tail string) target {
	fill := strings.NewReplacer(anyBlock, number, "."+anyKind, dotted(tail), anyKind, tail, "."+anyTail, dotted(tail), anyTail, dotted(tail))
	stem := strings.NewReplacer(anyBlock, number, "."+anyKind, "", "."+anyTail, "", anyTail, "")
	t := target{name: fill.Replace(r.to), part: r.part, of: r.of, ragged: r.ragged, group: stem.Replace(r.from), tail: tail, flip: r.flip, flat: r.flat}
	if r.unless != "" {
		t.unless = fill.Replace(r.unless)
	}
	return t
}

func dotted(tail string) string {
	if tail == "" {
		return ""
	}
	return "." + tail
}

package rename

// ditSeFi is SeFi-Image's diffusers transformer: FLUX.2's names under
// "backbone.", beside a dual_time_embed that keeps its names.
var ditSeFi = newTable(
	map[string]int{"transformer_blocks": 19, "single_transformer_blocks": 38, "double_blocks": 19, "single_blocks": 38},
	ruleList(fluxRules, ours(under("backbone.", fluxRules))),
).then(stage{prefix: pairs{{"backbone.", ""}}})

// under returns the rules with a prefix before the names they match.
func under(prefix string, rules []rule) []rule {
	out := make([]rule, len(rules))
	for i, r := range rules {
		r.from = prefix + r.from
		if r.unless != "" {
			r.unless = prefix + r.unless
		}
		out[i] = r
	}
	return out
}

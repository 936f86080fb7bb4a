package imatrix

import "fmt"

// Notes says in words what was lost, one sentence for each kind; none if
// nothing was.
func (l Loss) Notes() []string {
	var out []string
	add := func(names []string, what string) {
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("%s: %s", counted(names), what))
		}
	}
	add(l.Experts, "experts have row counts of their own, this form keeps one number for all")
	add(l.Unseen, "some experts saw no activation, written with weight 1")
	add(l.Empty, "no activation at all, not written")
	if l.Datasets > 0 {
		out = append(out, fmt.Sprintf("%d data set names beyond the first have no place in this form", l.Datasets))
	}
	if l.Provenance {
		out = append(out, "what the collector recorded (version, model, prompts) has no place in this form")
	}
	return out
}

// counted names the first of some entries and tells how many more there are.
func counted(names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("entry %q", names[0])
	}
	return fmt.Sprintf("entry %q and %d more", names[0], len(names)-1)
}

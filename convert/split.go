package convert

import (
	"path/filepath"
	"strings"
)

// Ending returns the file name ending of a format.
func (f Format) Ending() string { return "." + f.String() }

// splitGroups makes a group for each role that has tensors.
func (c *Conversion) splitGroups(o *Options) []*group {
	var groups []*group
	at := make(map[Role]*group)
	for _, it := range c.items {
		role := it.component.Role
		g, ok := at[role]
		if !ok {
			name := strings.ReplaceAll(role.String(), "-", "_") + o.Format.Ending()
			g = &group{path: filepath.Join(o.Output, name), role: role}
			at[role] = g
			groups = append(groups, g)
		}
		g.items = append(g.items, it)
	}
	return groups
}

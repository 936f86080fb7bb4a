package rename

import (
	"fmt"
	"strconv"
	"strings"
)

// IP-Adapter files number the cross-attentions of the UNet in the order
// diffusers walks them, two apart, starting at 1. These lists give the LDM
// blocks in that order with the number of transformer blocks in each.
type attentionRun struct {
	block string
	depth int
}

var (
	ipAdapterSD = []attentionRun{
		{"input_blocks.1.1", 1}, {"input_blocks.2.1", 1}, {"input_blocks.4.1", 1}, {"input_blocks.5.1", 1},
		{"input_blocks.7.1", 1}, {"input_blocks.8.1", 1},
		{"output_blocks.3.1", 1}, {"output_blocks.4.1", 1}, {"output_blocks.5.1", 1}, {"output_blocks.6.1", 1},
		{"output_blocks.7.1", 1}, {"output_blocks.8.1", 1}, {"output_blocks.9.1", 1}, {"output_blocks.10.1", 1},
		{"output_blocks.11.1", 1}, {"middle_block.1", 1},
	}
	ipAdapterSDXL = []attentionRun{
		{"input_blocks.4.1", 2}, {"input_blocks.5.1", 2}, {"input_blocks.7.1", 10}, {"input_blocks.8.1", 10},
		{"output_blocks.0.1", 10}, {"output_blocks.1.1", 10}, {"output_blocks.2.1", 10},
		{"output_blocks.3.1", 2}, {"output_blocks.4.1", 2}, {"output_blocks.5.1", 2}, {"middle_block.1", 10},
	}
)

// ipAdapterBlock returns the block that number n of an IP-Adapter belongs to.
func ipAdapterBlock(runs []attentionRun, n int) (string, bool) {
	if n < 1 || n%2 == 0 {
		return "", false
	}
	at := n / 2
	for _, r := range runs {
		if at < r.depth {
			return fmt.Sprintf("%s.transformer_blocks.%d", r.block, at), true
		}
		at -= r.depth
	}
	return "", false
}

// renameIPAdapter renames "ip_adapter.{n}.{projection}.{suffix}" and
// "image_proj.*"; ok is false for any other name.
func renameIPAdapter(f Family, name string) (out string, ok bool) {
	if strings.HasPrefix(name, "image_proj.") {
		return "ip_adapter." + name, true
	}
	rest, ok := strings.CutPrefix(name, "ip_adapter.")
	if !ok {
		return name, false
	}
	items := strings.Split(rest, ".")
	if len(items) < 3 {
		return name, true
	}
	n, err := strconv.Atoi(items[0])
	if err != nil {
		return name, true
	}
	runs := ipAdapterSD
	if f.In(GroupSDXL) {
		runs = ipAdapterSDXL
	}
	block, found := ipAdapterBlock(runs, n)
	if !found {
		return name, true
	}
	return prefixDiffusion + block + ".attn2." + items[1] + "." + items[2], true
}

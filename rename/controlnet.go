package rename

import (
	"fmt"
	"strings"
)

// controlNetHeads are how the names of a diffusers ControlNet for SDXL begin.
var controlNetHeads = []string{
	"controlnet_cond_embedding.", "controlnet_down_blocks.", "controlnet_mid_block.",
	"down_blocks.", "mid_block.", "time_embedding.", "add_embedding.", "conv_in.",
}

// controlNetOwn are the layers a ControlNet has besides the UNet's encoder.
var controlNetOwn = func() pairs {
	p := pairs{{"controlnet_cond_embedding.conv_in.", "input_hint_block.0."}}
	for i := range 6 {
		p = append(p, pair{fmt.Sprintf("controlnet_cond_embedding.blocks.%d.", i), fmt.Sprintf("input_hint_block.%d.", 2*i+2)})
	}
	return append(p,
		pair{"controlnet_cond_embedding.conv_out.", "input_hint_block.14."},
		pair{"controlnet_mid_block.", "middle_block_out.0."})
}()

// renameControlNet strips "control_model." and, for SDXL, renames a diffusers
// ControlNet to the layout of the original one.
func renameControlNet(f Family, name string) string {
	name = strings.TrimPrefix(name, "control_model.")
	if !f.In(GroupSDXL) || !hasAnyPrefix(name, controlNetHeads) {
		return name
	}
	name = unetSDXL.renameCompat(name)
	if out := controlNetOwn.firstPrefix(name); out != name {
		return out
	}
	if rest, ok := strings.CutPrefix(name, "controlnet_down_blocks."); ok {
		if index, tail, ok := strings.Cut(rest, "."); ok {
			return "zero_convs." + index + ".0." + tail
		}
	}
	return name
}

func hasAnyPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

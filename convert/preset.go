package convert

import (
	"embed"
	"fmt"
	"strings"
)

// Preset is a named list of type rules for one kind of model.
type Preset struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Text  string `json:"rules"` // one rule a line, as ParseRuleLines takes
}

//go:embed presets/*.rules
var presetFiles embed.FS

// presets lists the presets; the rules of each are in presets/NAME.rules.
var presets = []Preset{
	{Name: "comfy", Title: "what ComfyUI-GGUF's own converter keeps in high precision, for every family it loads"},
	{Name: "flux", Title: "FLUX.1 and FLUX.2: inputs, modulation and output stay precise"},
	{Name: "sd3", Title: "Stable Diffusion 3 and 3.5: embedders, positions, modulation and output stay precise"},
	{Name: "qwen-image", Title: "Qwen-Image: inputs, modulation and the first and last blocks stay precise"},
	{Name: "wan", Title: "Wan 2.1 and 2.2: embeddings, modulation and the head stay precise"},
	{Name: "ideogram4", Title: "Ideogram 4: all but the layers' attention, feed-forward and modulation stays precise"},
}

// Presets lists every preset.
func Presets() []Preset {
	list := make([]Preset, len(presets))
	for i, p := range presets {
		text, err := presetFiles.ReadFile("presets/" + p.Name + ".rules")
		if err != nil {
			continue // a test looks at every file
		}
		p.Text = string(text)
		list[i] = p
	}
	return list
}

// FindPreset returns the preset with the given name.
func FindPreset(name string) (Preset, error) {
	var names []string
	for _, p := range Presets() {
		if strings.EqualFold(p.Name, strings.ReplaceAll(name, "_", "-")) {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("unknown preset %q (there are %s)", name, strings.Join(names, ", "))
}

// Rules returns the preset's rules.
func (p Preset) Rules() ([]Rule, error) {
	rules, err := ParseRuleLines(p.Text, "preset "+p.Name)
	for i := range rules {
		rules[i].Preset = true
	}
	return rules, err
}

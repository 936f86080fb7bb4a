package main

import (
	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
)

func newPresetsCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "presets [NAME]",
		Short: "List the presets of type rules, or print one",
		Long: `List the presets of type rules, or print the rules of one.

A preset is a list of rules and nothing else: what it prints can be saved, changed
and given to convert --tensor-type-rules @FILE.`,
		Example: `  sdtool presets
  sdtool presets flux > flux.rules
  sdtool convert -m flux.safetensors -o flux.gguf --type q4_K --preset flux`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				p, err := convert.FindPreset(args[0])
				if err != nil {
					return &usageError{err}
				}
				if asJSON {
					return a.printJSON(p)
				}
				return a.printf("# %s: %s\n%s", p.Name, p.Title, p.Text)
			}
			if asJSON {
				return a.printJSON(convert.Presets())
			}
			t := newTable(a.stdout)
			t.row("NAME", "RULES", "WHAT IT KEEPS")
			for _, p := range convert.Presets() {
				rules, err := p.Rules()
				if err != nil {
					return err
				}
				t.row(p.Name, len(rules), p.Title)
			}
			return t.flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

package main

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/imatrix/chart"
	"github.com/sdtool/sdtool/writer"
)

func newImatrixPlotCommand(a *app) *cobra.Command {
	var out string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "plot FILE -o heat.png|report.html",
		Short: "Draw an importance matrix",
		Long: `A heat map with one line for each entry: its columns from left to right, bright where they matter more than the
entry's mean. A .html output also has the table of 'imatrix show', to sort in a browser.`,
		Example: `  sdtool imatrix plot imatrix.dat -o heat.png
  sdtool imatrix plot imatrix.gguf -o report.html`,
		Args: arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			draw := chart.WritePNG
			switch strings.ToLower(filepath.Ext(out)) {
			case ".png":
			case ".html", ".htm":
				draw = chart.WriteHTML
			case "":
				return usagef("no output given: use -o FILE.png or -o FILE.html")
			default:
				return usagef("cannot draw to %q: want a name that ends in .png or .html", out)
			}
			f, err := imatrix.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			lines, err := chart.Lines(f)
			if err != nil {
				return err
			}
			err = writer.WriteFile(out, writer.FileOptions{Overwrite: overwrite, Inputs: args}, func(w io.Writer) error {
				return draw(w, filepath.Base(args[0]), lines)
			})
			if err != nil {
				return err
			}
			return a.tell("wrote %s: %d entries\n", clean(out), len(lines))
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write, .png or .html")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace an existing output")
	return cmd
}

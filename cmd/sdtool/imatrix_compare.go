package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/imatrix"
)

// errDiffer makes 'imatrix compare' exit with 1 where a limit was given and broken.
var errDiffer = errors.New("the matrices differ by more than the limit")

// differenceSummary is one line of 'imatrix compare --json'.
type differenceSummary struct {
	Name     string   `json:"name"`
	OnlyIn   string   `json:"only_in,omitempty"`
	Widths   [2]int   `json:"widths"`
	Cosine   *float64 `json:"cosine"`
	RelError *float64 `json:"relative_error"`
}

func newImatrixCompareCommand(a *app) *cobra.Command {
	var asJSON bool
	var minCosine, maxError float64
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two importance matrices entry by entry",
		Long: `For each entry the cosine of the two vectors of column means and the relative error |A-B|/|A|, worst first, and
entries that only one side has. With --min-cosine or --max-error the exit code is 1 if any entry breaks the limit or is
missing.`,
		Example: `  sdtool imatrix compare ours.dat theirs.dat
  sdtool imatrix compare a.gguf b.gguf --min-cosine 0.999`,
		Args: arguments("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, done, err := openMatrices(args)
			if err != nil {
				return err
			}
			defer done()
			diffs, err := imatrix.Compare(files[0], files[1])
			if err != nil {
				return err
			}
			slices.SortStableFunc(diffs, func(x, y imatrix.Difference) int { return descending(badness(x), badness(y)) })
			if asJSON {
				err = a.printJSON(summariseDifferences(args, diffs))
			} else {
				err = printDifferences(cmd.OutOrStdout(), args, diffs)
			}
			if err != nil {
				return err
			}
			strict := cmd.Flags().Changed("min-cosine") || cmd.Flags().Changed("max-error")
			for _, d := range diffs {
				broken := d.OnlyIn != 0 || math.IsNaN(d.Cosine) || d.Cosine < minCosine || d.RelError > maxError
				if strict && d.OnlyIn != 0 {
					return fmt.Errorf("compare %s and %s: entry %q is only in %s: %w", args[0], args[1], d.Name, args[d.OnlyIn-1], errDiffer)
				}
				if strict && broken {
					return fmt.Errorf("compare %s and %s: entry %q: %w", args[0], args[1], d.Name, errDiffer)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().Float64Var(&minCosine, "min-cosine", -1, "fail if an entry's cosine is below this")
	cmd.Flags().Float64Var(&maxError, "max-error", math.Inf(1), "fail if an entry's relative error is above this")
	return cmd
}

// badness orders differences: entries that cannot be compared come first.
func badness(d imatrix.Difference) float64 {
	if d.OnlyIn != 0 || math.IsNaN(d.RelError) {
		return math.Inf(1)
	}
	return d.RelError
}

func summariseDifferences(names []string, diffs []imatrix.Difference) []differenceSummary {
	out := make([]differenceSummary, 0, len(diffs))
	for _, d := range diffs {
		s := differenceSummary{Name: d.Name, Widths: d.Width}
		if d.OnlyIn != 0 {
			s.OnlyIn = names[d.OnlyIn-1]
		}
		if !math.IsNaN(d.Cosine) {
			s.Cosine = &d.Cosine
		}
		if !math.IsNaN(d.RelError) && !math.IsInf(d.RelError, 0) {
			s.RelError = &d.RelError
		}
		out = append(out, s)
	}
	return out
}

func printDifferences(w io.Writer, names []string, diffs []imatrix.Difference) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "cosine\trelative error\t  name")
	both, worst := 0, 1.0
	for _, d := range diffs {
		switch {
		case d.OnlyIn != 0:
			fmt.Fprintf(table, "-\t-\t  %s (only in %s)\n", clean(d.Name), clean(names[d.OnlyIn-1]))
		case math.IsNaN(d.Cosine):
			fmt.Fprintf(table, "-\t-\t  %s (%d columns against %d)\n", clean(d.Name), d.Width[0], d.Width[1])
		default:
			both++
			worst = min(worst, d.Cosine)
			fmt.Fprintf(table, "%.8f\t%.3g\t  %s\n", d.Cosine, d.RelError, clean(d.Name))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if both == 0 {
		_, err := fmt.Fprintf(w, "no entry is in both and of one width; %d not comparable\n", len(diffs))
		return err
	}
	_, err := fmt.Fprintf(w, "%d entries in both, %d not comparable, lowest cosine %.8f\n", both, len(diffs)-both, worst)
	return err
}

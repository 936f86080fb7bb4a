package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/imatrix"
)

// sortKeys are the columns of 'imatrix show' by which it can sort; all but the
// name go from high to low.
var sortKeys = map[string]func(a, b imatrix.Statistics) int{
	"file":    nil,
	"name":    func(a, b imatrix.Statistics) int { return strings.Compare(a.Name, b.Name) },
	"columns": func(a, b imatrix.Statistics) int { return b.Cols - a.Cols },
	"calls":   func(a, b imatrix.Statistics) int { return descending(float64(a.Calls), float64(b.Calls)) },
	"rows":    func(a, b imatrix.Statistics) int { return descending(float64(a.Rows), float64(b.Rows)) },
	"mean":    func(a, b imatrix.Statistics) int { return descending(a.Mean, b.Mean) },
	"max":     func(a, b imatrix.Statistics) int { return descending(a.Max, b.Max) },
	"top1":    func(a, b imatrix.Statistics) int { return descending(a.Top1, b.Top1) },
	"top5":    func(a, b imatrix.Statistics) int { return descending(a.Top5, b.Top5) },
	"entropy": func(a, b imatrix.Statistics) int { return descending(a.Entropy, b.Entropy) },
	"zero":    func(a, b imatrix.Statistics) int { return b.Zero - a.Zero },
	"unseen":  func(a, b imatrix.Statistics) int { return b.Unseen - a.Unseen },
}

func descending(a, b float64) int {
	switch {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}

// matrixSummary is what 'imatrix show' prints; its JSON names are a promise.
type matrixSummary struct {
	File       string            `json:"file"`
	Format     string            `json:"format"`
	Entries    int               `json:"entries"`
	Datasets   []string          `json:"datasets,omitempty"`
	ChunkCount uint32            `json:"chunk_count"`
	ChunkSize  uint32            `json:"chunk_size"`
	Provenance map[string]string `json:"provenance,omitempty"`
	List       []entrySummary    `json:"tensors"`
}

type entrySummary struct {
	Name     string  `json:"name"`
	Cols     int     `json:"columns"`
	Matrices int     `json:"matrices"`
	Unseen   int     `json:"unseen_matrices"`
	Calls    int64   `json:"calls"`
	Rows     int64   `json:"rows"`
	Mean     float64 `json:"mean"`
	Max      float64 `json:"max"`
	Top1     float64 `json:"top_1_percent_share"`
	Top5     float64 `json:"top_5_percent_share"`
	Entropy  float64 `json:"entropy"`
	Zero     int     `json:"zero_columns"`
}

func newImatrixShowCommand(a *app) *cobra.Command {
	var asJSON bool
	var order string
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print what an importance matrix holds",
		Long: `For each entry: columns, matrices (experts), calls, activation rows, mean and largest mean square of a column, the
share of the total in the strongest 1 % and 5 % of columns, entropy (1 = all columns alike, 0 = one column) and the
number of columns that were always zero.`,
		Example: `  sdtool imatrix show imatrix.dat --sort top1
  sdtool imatrix show imatrix.gguf --json | jq '.tensors[0]'`,
		Args: arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			compare, ok := sortKeys[order]
			if !ok {
				return usagef("cannot sort by %q: want one of %s", order, strings.Join(sortNames(), ", "))
			}
			f, err := imatrix.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			list := make([]imatrix.Statistics, 0, len(f.Headers()))
			for i := range f.Headers() {
				e, err := f.Read(i)
				if err != nil {
					return err
				}
				list = append(list, e.Statistics())
			}
			if compare != nil {
				slices.SortStableFunc(list, compare)
			}
			if asJSON {
				return a.printJSON(newMatrixSummary(f, list))
			}
			return printMatrix(cmd.OutOrStdout(), f, list)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&order, "sort", "file", "sort by "+strings.Join(sortNames(), ", "))
	return cmd
}

func sortNames() []string {
	var names []string
	for k := range sortKeys {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

func newMatrixSummary(f *imatrix.File, list []imatrix.Statistics) matrixSummary {
	info := f.Info()
	s := matrixSummary{File: f.Path, Format: f.Format.String(), Entries: len(list), Datasets: info.Datasets,
		ChunkCount: info.ChunkCount, ChunkSize: info.ChunkSize, Provenance: info.Provenance}
	for _, e := range list {
		s.List = append(s.List, entrySummary{e.Name, e.Cols, e.Matrices, e.Unseen, e.Calls, e.Rows, e.Mean, e.Max, e.Top1, e.Top5, e.Entropy, e.Zero})
	}
	return s
}

func printMatrix(w io.Writer, f *imatrix.File, list []imatrix.Statistics) error {
	info := f.Info()
	fmt.Fprintf(w, "%s: %s form, %d entries", clean(f.Path), f.Format, len(list))
	if info.ChunkCount > 0 {
		fmt.Fprintf(w, ", %d chunks", info.ChunkCount)
	}
	if info.ChunkSize > 0 {
		fmt.Fprintf(w, " of %d", info.ChunkSize)
	}
	fmt.Fprintln(w)
	for _, d := range info.Datasets {
		fmt.Fprintf(w, "dataset: %s\n", clean(d))
	}
	keys := make([]string, 0, len(info.Provenance))
	for k := range info.Provenance {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(w, "%s: %s\n", clean(k), clean(info.Provenance[k]))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "columns\tcalls\trows\tmean\tmax\ttop 1%\ttop 5%\tentropy\tzero\texperts\t  name")
	for _, e := range list {
		experts := ""
		if e.Matrices > 1 {
			experts = fmt.Sprintf("%d/%d", e.Matrices-e.Unseen, e.Matrices)
		}
		fmt.Fprintf(table, "%d\t%d\t%d\t%.4g\t%.4g\t%.1f%%\t%.1f%%\t%.3f\t%d\t%s\t  %s\n",
			e.Cols, e.Calls, e.Rows, e.Mean, e.Max, 100*e.Top1, 100*e.Top5, e.Entropy, e.Zero, experts, clean(e.Name))
	}
	return table.Flush()
}

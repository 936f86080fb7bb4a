package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/writer"
)

// newImatrixCommand is the parent of all commands about importance matrices.
func newImatrixCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "imatrix",
		Short: "Merge, convert, inspect, compare and draw importance matrices",
		Long: `An importance matrix (imatrix) holds, for every weight, how strongly each of its input columns is driven when the
model runs. 'sdtool convert --imatrix FILE' spends the bits of a quantized type where they matter.

Two file forms are read, told apart by content: the legacy .dat that stable-diffusion.cpp and older llama.cpp write,
and the GGUF form that llama-imatrix writes now.`,
		Example: "  sdtool imatrix show imatrix.dat",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newImatrixMergeCommand(a), newImatrixConvertCommand(a), newImatrixShowCommand(a),
		newImatrixCompareCommand(a), newImatrixPlotCommand(a), newImatrixCollectCommand(a))
	return cmd
}

// imatrixOutput are the flags of commands that write an importance matrix.
type imatrixOutput struct {
	path, format string
	overwrite    bool
}

func (o *imatrixOutput) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.path, "output", "o", "", "file to write")
	cmd.Flags().StringVar(&o.format, "format", "", "dat or gguf (default: by the ending of the output, dat if it has neither)")
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "replace an existing output")
}

func (o *imatrixOutput) form() (imatrix.Format, error) {
	if o.path == "" {
		return 0, usagef("no output given: use -o FILE")
	}
	if o.format != "" {
		f, err := imatrix.ParseFormat(strings.ToLower(o.format))
		if err != nil {
			return 0, usagef("%v", err)
		}
		return f, nil
	}
	if strings.EqualFold(filepath.Ext(o.path), ".gguf") {
		return imatrix.FormatGGUF, nil
	}
	return imatrix.FormatDat, nil
}

// write writes the set all or nothing and says on w what the form could not hold.
func (o *imatrixOutput) write(w io.Writer, s imatrix.Set, inputs []string) error {
	form, err := o.form()
	if err != nil {
		return err
	}
	if len(s.Headers()) == 0 {
		return fmt.Errorf("write %s: %w", o.path, imatrix.ErrEmpty)
	}
	var loss imatrix.Loss
	err = writer.WriteFile(o.path, writer.FileOptions{Overwrite: o.overwrite, Inputs: inputs}, func(out io.Writer) error {
		var err error
		loss, err = imatrix.Write(out, s, form)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "wrote %s: %d entries, %s form\n", o.path, len(s.Headers()), form)
	for _, note := range loss.Notes() {
		fmt.Fprintf(w, "note: %s\n", clean(note))
	}
	if long := imatrix.LongNames(s); form == imatrix.FormatGGUF && len(long) > 0 {
		fmt.Fprintf(w, "note: %s longer than 63 bytes with their endings, which unpatched ggml readers (llama.cpp) refuse: %s\n", plural(len(long), "name"), clean(convert.List(long)))
	}
	return nil
}

// openMatrices opens importance matrices and returns a function that closes them all.
func openMatrices(paths []string) ([]*imatrix.File, func(), error) {
	var files []*imatrix.File
	closeAll := func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, p := range paths {
		f, err := imatrix.Open(p)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		files = append(files, f)
	}
	return files, closeAll, nil
}

func newImatrixMergeCommand(a *app) *cobra.Command {
	var out imatrixOutput
	var single bool
	cmd := &cobra.Command{
		Use:   "merge FILE FILE... -o OUT",
		Short: "Add importance matrices up",
		Long: `Sums, row counts and calls are added entry by entry; an entry that only some files have is kept. Entries of one name
must have the same width. Memory stays at one entry, whatever the size of the files.`,
		Example: `  sdtool imatrix merge night1.gguf night2.gguf -o both.gguf
  sdtool imatrix merge part-*.dat -o all.dat`,
		Args: someArguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, done, err := openMatrices(args)
			if err != nil {
				return err
			}
			defer done()
			sets := make([]imatrix.Set, len(files))
			for i, f := range files {
				sets[i] = f
			}
			var opts []imatrix.MergeOption
			if single {
				opts = append(opts, imatrix.Float32Sums())
			}
			merged, err := imatrix.Merge(sets, opts...)
			if err != nil {
				return err
			}
			return out.write(a.summary(), merged, args)
		},
	}
	out.register(cmd)
	cmd.Flags().BoolVar(&single, "float32-sums", false, "round every sum to float32 after each file, as sd-cli does with several --imat-in")
	return cmd
}

func newImatrixConvertCommand(a *app) *cobra.Command {
	var out imatrixOutput
	cmd := &cobra.Command{
		Use:   "convert FILE -o OUT",
		Short: "Turn a .dat into the GGUF form, or back",
		Long: `Everything that the target can hold is kept; what it cannot hold is said. A .dat has no counts for single experts
and no room for provenance; GGUF readers built with 64-byte names refuse longer ones.`,
		Example: `  sdtool imatrix convert imatrix.dat -o imatrix.gguf`,
		Args:    arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := imatrix.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return out.write(a.summary(), f, args)
		},
	}
	out.register(cmd)
	return cmd
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// renameFlags are those of all rename commands.
type renameFlags struct {
	writeFlags
	typ     string
	rules   []string
	outside bool
}

func (f *renameFlags) register(cmd *cobra.Command) {
	f.writeFlags.register(cmd)
	fs := cmd.Flags()
	fs.Var(&typeFlag{&f.typ}, "type", "`TYPE` to quantize to on the way: f16, bf16, q8_0, q4_K … (default: bytes stay as they are)")
	fs.StringArrayVar(&f.rules, "tensor-type-rules", nil, "PATTERN=TYPE,… or @FILE, as in 'sdtool convert'")
	fs.BoolVar(&f.outside, "allow-outside", false, "let an index name files outside its folder")
}

// rewriter renames the tensors of an input.
type rewriter = func([]tensor.Tensor) (*rename.Result, error)

// must makes a table an error where it changes nothing: the input is then not what
// the table is for.
func must(rewrite rewriter, want string) rewriter {
	return func(in []tensor.Tensor) (*rename.Result, error) {
		r, err := rewrite(in)
		if err != nil || r.Changed() > 0 || len(r.Incomplete) > 0 {
			return r, err
		}
		found := "no tensor"
		if len(in) > 0 {
			found = fmt.Sprintf("%s such as %q", plural(len(in), "tensor"), in[0].Name)
		}
		return nil, fmt.Errorf("nothing to rename: want %s, found %s", want, found)
	}
}

func newRenameCommand(a *app) *cobra.Command {
	f := &renameFlags{}
	var table string
	cmd := &cobra.Command{
		Use:   "rename --map FILE IN OUT",
		Short: "Rename the tensors of a checkpoint",
		Long: `Rename tensors by a table of your own, or by a built-in one (see the commands below).

A line of the table is REGEX -> REPLACEMENT; the first whose expression (RE2) is
found in a name decides, and replaces what it matches. $1 stands for what the
first parentheses matched. Lines that begin with # are comments. Two tensors that
would get one name are an error. --dry-run prints old and new names.

Bytes stay as they are unless --type is given. OUT ends in .safetensors or .gguf.`,
		Example: `  sdtool rename --map names.txt in.safetensors out.safetensors --dry-run
  sdtool rename sefi SeFi-Image/ sefi.safetensors
  sdtool rename qwen3-vl Qwen3-VL-8B/ qwen3vl.gguf --type q8_0`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case table == "" && len(args) == 0:
				return cmd.Help()
			case table == "":
				return usagef("unknown table %q: want sefi, qwen3-vl or --map FILE", args[0])
			case len(args) != 2:
				return usagef("want IN and OUT, found %s", plural(len(args), "argument"))
			}
			m, err := readMap(table)
			if err != nil {
				return err
			}
			return a.rename(cmd.Context(), f, args[0], args[1], must(m.Apply, "a name that the table finds"), false)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&table, "map", "", "table of names: REGEX -> REPLACEMENT a line")
	cmd.AddCommand(newRenameSeFiCommand(a), newRenameQwen3VLCommand(a))
	return cmd
}

func newRenameSeFiCommand(a *app) *cobra.Command {
	f := &renameFlags{}
	cmd := &cobra.Command{
		Use:   "sefi DIR OUT",
		Short: "SeFi-Image's diffusers transformer in stable-diffusion.cpp's layout",
		Long: `Read the transformer of a SeFi-Image folder and write one file with the names that
stable-diffusion.cpp reads: q, k and v of the double blocks become one tensor, the
halves of the final modulation change places. Names are sorted.`,
		Example: "  sdtool rename sefi SeFi-Image/ sefi.safetensors",
		Args:    arguments("DIR", "OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := filepath.Join(args[0], "transformer")
			if _, err := os.Stat(in); err != nil { // the folder or file itself
				in = args[0]
			}
			return a.rename(cmd.Context(), f, in, args[1], must(rename.SeFi, "the names of a SeFi-Image diffusers transformer (transformer_blocks.0.attn.to_q.weight …)"), true)
		},
	}
	f.register(cmd)
	return cmd
}

func newRenameQwen3VLCommand(a *app) *cobra.Command {
	f := &renameFlags{}
	cmd := &cobra.Command{
		Use:   "qwen3-vl DIR|FILE OUT",
		Short: "A Hugging Face Qwen3-VL in the names stable-diffusion.cpp reads",
		Long: `Read a Qwen3-VL checkpoint, shards and all, and write one file in which
model.language_model.X is called model.X. Names are sorted.`,
		Example: "  sdtool rename qwen3-vl Qwen3-VL-8B-Instruct/ qwen3vl.safetensors",
		Args:    arguments("DIR|FILE", "OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.rename(cmd.Context(), f, args[0], args[1], must(rename.Qwen3VL, "names that begin with model.language_model. ('sdtool convert' puts shards together)"), true)
		},
	}
	f.register(cmd)
	return cmd
}

func readMap(path string) (*rename.Map, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := rename.ParseMap(file)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, &usageError{fmt.Errorf("%s: %w", path, err)}
	}
	return m, nil
}

// rename writes a checkpoint under other names.
func (a *app) rename(ctx context.Context, f *renameFlags, in, out string, rewrite rewriter, sorted bool) error {
	o := &convert.Options{
		Inputs: []convert.Input{{Role: convert.RoleModel, Path: in, Rewrite: rewrite, Sort: sorted}},
		Output: out, Format: convert.FormatSafetensors,
		KeepTypes: true, KeepUnused: true, KeepScales: f.typ == "",
		Open: convert.OpenOptions{AllowOutside: f.outside},
	}
	switch {
	case endsIn(out, ".gguf"):
		o.Format = convert.FormatGGUF
	case !endsIn(out, ".safetensors"):
		return usagef("output %s: end its name in .safetensors or .gguf", out)
	}
	types := &convertFlags{typ: f.typ, rules: f.rules}
	if err := types.setPolicy(o); err != nil {
		return err
	}
	f.names = true
	return a.convert(ctx, o, &f.writeFlags)
}

// convert plans a conversion, and prints the plan or carries it out.
func (a *app) convert(ctx context.Context, o *convert.Options, f *writeFlags) (err error) {
	if !f.dryRun {
		if err := writer.Check(o.Output, f.overwrite, []string{o.Inputs[0].Path}); err != nil {
			return err
		}
	}
	c, err := convert.Plan(ctx, *o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, w := range c.Warnings {
		a.warn(w)
	}
	if f.planned != nil {
		f.planned(c)
	}
	if f.dryRun {
		return a.printPlan(c, o, f.json, f.names)
	}
	return a.writeConversion(ctx, c, f)
}

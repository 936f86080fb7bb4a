package main

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/gguf"
)

// copyFlags are those of commands that write tensors as they are.
type copyFlags struct {
	poolFlags
	output string
}

func (f *copyFlags) register(cmd *cobra.Command, output string) {
	cmd.Flags().StringVarP(&f.output, "output", "o", "", output)
	f.poolFlags.register(cmd)
}

func newSplitCommand(a *app) *cobra.Command {
	f := &copyFlags{}
	var size sizeFlag
	var count int
	cmd := &cobra.Command{
		Use:   "split FILE --max-size SIZE | --max-tensors N",
		Short: "Cut a GGUF or safetensors file into parts",
		Long: `Write a file as parts named PREFIX-00001-of-0000N: GGUF with the split keys that
llama.cpp's tools know, safetensors with an index (PREFIX.safetensors.index.json).
Tensors and metadata stay as they are. A tensor larger than --max-size gets a part of
its own. 'sdtool merge' puts the parts together again.`,
		Example: `  sdtool split model.gguf --max-size 4G
  sdtool split model.safetensors -o parts/model --max-tensors 100`,
		Args: arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case size > 0 && count > 0:
				return usagef("--max-size and --max-tensors exclude each other")
			case size == 0 && count == 0:
				return usagef("how large may a part be? give --max-size SIZE or --max-tensors N")
			}
			if f.output == "" {
				f.output = strings.TrimSuffix(args[0], filepath.Ext(args[0]))
			}
			cp, err := openWhole(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, cp.Close()) }()
			p := a.newProgress(f.progress, "split")
			paths, err := convert.Split(cmd.Context(), cp, f.output, convert.ShardOptions{MaxBytes: int64(size), MaxTensors: count, WriteOptions: f.options(p)})
			p.close(err)
			if err != nil {
				return err
			}
			for _, path := range paths {
				if err := a.tell("wrote %s\n", clean(path)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.register(cmd, "prefix of the parts' names (default: the file's, without its ending)")
	cmd.Flags().Var(&size, "max-size", "most bytes of tensors in a part, as 4G")
	intVar(cmd.Flags(), &count, "max-tensors", "", 1, 1<<30, "most tensors in a part")
	return cmd
}

func newMergeCommand(a *app) *cobra.Command {
	f := &copyFlags{}
	cmd := &cobra.Command{
		Use:   "merge FIRST-00001-of-0000N.gguf|INDEX.json -o OUT",
		Short: "Put a split or sharded set together",
		Long: `Read a set of GGUF parts, given any one of them, or a safetensors index or the folder
that holds it, and write one file of the same format. Tensors and metadata stay as they
are; the keys about the splitting are left out. 'sdtool convert' reads sets as well.`,
		Example: `  sdtool merge model-00001-of-00003.gguf -o model.gguf
  sdtool merge model.safetensors.index.json -o model.safetensors`,
		Args: arguments("SET"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if f.output == "" {
				return usagef("no output: give -o FILE")
			}
			cp, err := openWhole(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, cp.Close()) }()
			if ending := cp.Format.Ending(); !endsIn(f.output, ending) {
				return usagef("output %s: the parts are %s, end its name in %s ('sdtool convert' changes formats)", f.output, cp.Format, ending)
			}
			if _, _, n, ok := gguf.ParseSplitName(f.output); ok && n > 1 {
				return usagef("output %s: its name is that of a part of a set", f.output)
			}
			p := a.newProgress(f.progress, "merge")
			err = convert.Join(cmd.Context(), cp, f.output, f.options(p))
			p.close(err)
			if err != nil {
				return err
			}
			return a.tell("wrote %s: %s from %s\n", clean(f.output), plural(len(cp.Tensors), "tensor"), plural(len(cp.Paths), "file"))
		},
	}
	f.register(cmd, "file to write")
	return cmd
}

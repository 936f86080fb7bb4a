package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

const fp8Long = `Multiply the weights of a scaled checkpoint by their scales and write them as BF16.

Every float tensor becomes BF16, others are copied, scales and their markers are
left out. The conventions are found out from names, dtypes and shapes: fp8 with
weight_scale or scale_weight (one number, one a row, or a shape that broadcasts),
block scales (weight_scale_inv), int8 with and without ConvRot, mxfp8, nvfp4, and
what ComfyUI says in comfy_quant or _quantization_metadata. A scheme that is not
known in all its parts is an error that names the tensor.

IN is a file, an index, or the folder that holds one. 'sdtool convert' multiplies
scales in as well, on the way to any type.`

// fp8Conversion is what the peer's script writes into the metadata.
const fp8Conversion = "fp8_weight_scale_to_bf16"

// poolFlags are those of commands that write model files with workers.
type poolFlags struct {
	overwrite bool
	threads   int
	memory    sizeFlag
	progress  string
}

func (f *poolFlags) register(cmd *cobra.Command) {
	f.memory = writer.DefaultMaxMemory
	fs := cmd.Flags()
	fs.BoolVar(&f.overwrite, "overwrite", false, "replace an existing output")
	threadsFlag(fs, &f.threads, "workers (default: physical cores)")
	fs.Var(&f.memory, "max-memory", "memory for buffers, as 512MiB or 2G")
	progressFlag(cmd, &f.progress)
}

func (f *poolFlags) options(p *progress) convert.WriteOptions {
	return convert.WriteOptions{
		Overwrite: f.overwrite, Threads: f.threads, MaxMemory: int64(f.memory),
		Progress: func(w writer.Progress) { p.set(w.Done, w.Total, w.Tensor) },
	}
}

// writeFlags are those of commands that plan one model file.
type writeFlags struct {
	poolFlags
	dryRun bool
	json   bool
	resume bool

	names   bool                      // the plan shows the names in the input too
	planned func(*convert.Conversion) // looks at the plan, if set
}

func (f *writeFlags) register(cmd *cobra.Command) {
	f.poolFlags.register(cmd)
	fs := cmd.Flags()
	resumeFlag(cmd, &f.resume)
	fs.BoolVar(&f.dryRun, "dry-run", false, "print what would be written, and write nothing")
	fs.BoolVar(&f.json, "json", false, "print the plan or the summary as JSON")
}

// resumeFlag adds --resume to a command.
func resumeFlag(cmd *cobra.Command, resume *bool) {
	cmd.Flags().BoolVar(resume, "resume", false, "keep what is written if it fails or is interrupted, and go on from there the next time")
}

func newFP8Command(a *app) *cobra.Command {
	f := &writeFlags{}
	var outside bool
	cmd := &cobra.Command{
		Use:   "fp8-to-bf16 IN OUT",
		Short: "Decode fp8, int8 and fp4 weights with scales to BF16",
		Long:  fp8Long,
		Example: `  sdtool fp8-to-bf16 flux1-dev-fp8.safetensors flux1-dev-bf16.safetensors
  sdtool fp8-to-bf16 model.safetensors.index.json model-bf16.safetensors --dry-run`,
		Args: arguments("IN", "OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasSuffix(strings.ToLower(args[1]), convert.FormatSafetensors.Ending()) {
				return usagef("output %s: it is a safetensors file and its name must say so; 'sdtool convert' writes GGUF", args[1])
			}
			o := &convert.Options{
				Inputs: []convert.Input{{Role: convert.RoleModel, Path: args[0]}},
				Output: args[1], Format: convert.FormatSafetensors,
				Policy: convert.Policy{Rules: []convert.Rule{{
					Pattern: regexp.MustCompile(""), Type: tensor.BF16, Text: "every float=bf16", Origin: "fp8-to-bf16",
				}}},
				KeepTypes: true, KeepUnused: true,
				Open:    convert.OpenOptions{AllowOutside: outside},
				Strings: map[string]string{"format": "pt", "conversion": fp8Conversion},
			}
			f.planned = func(c *convert.Conversion) {
				if !slices.ContainsFunc(c.Components(), func(x *convert.Component) bool { return x.Scaled != nil && len(x.Scaled.Weights) > 0 }) {
					a.warn(args[0] + ": no weight has scales; all floats are only rounded to BF16")
				}
			}
			return a.convert(cmd.Context(), o, f)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&outside, "allow-outside", false, "let an index name files outside its folder")
	return cmd
}

// endsIn reports whether a path ends in one of the endings, in any case.
func endsIn(path string, endings ...string) bool {
	return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(strings.ToLower(path), e) })
}

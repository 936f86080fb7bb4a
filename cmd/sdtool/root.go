package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands makes every command; a new one is a line here and a file of its own.
var commands = []func(*app) *cobra.Command{
	newConvertCommand,
	newInspectCommand,
	newVerifyCommand,
	newDiffCommand,
	newChecksumCommand,
	newSplitCommand,
	newMergeCommand,
	newFP8Command,
	newRenameCommand,
	newImatrixCommand,
	newGenerateCommand,
	newEngineCommand,
	newPresetsCommand,
	newVersionCommand,
}

const exitCodes = `Exit codes:
  0    done
  1    failed: a file is missing, damaged or does not fit, or the disk is full
  2    wrong usage: an unknown command, flag, type or rule
  130  interrupted; the output is as it was before
`

const rootLong = `sdtool prepares checkpoints of diffusion models: it converts between safetensors,
GGUF and torch files, quantizes to every ggml type with or without an importance
matrix, renames tensors, shows what is in a file and checks what was made, and
generates pictures to collect the importance matrix from.

Inputs are never changed. An output is complete or not there.`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "sdtool",
		Short: "Convert, quantize and inspect checkpoints of diffusion models",
		Long:  rootLong,
		Example: `  sdtool inspect model.safetensors
  sdtool convert -m model.safetensors -o model-q8_0.gguf --type q8_0
  sdtool convert -m flux.safetensors -o flux.gguf --type q4_K --dry-run`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.begin,
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.stdout) // before the completion command takes it
	root.SetErr(a.stderr)
	root.CompletionOptions.HiddenDefaultCmd = false
	flags := root.PersistentFlags()
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print errors only")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "print what is decided for each tensor")
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.SetUsageTemplate(root.UsageTemplate() + "\n" + exitCodes)
	for _, newCommand := range commands {
		root.AddCommand(newCommand(a))
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.RunE, cmd.Run = func(_ *cobra.Command, args []string) error { return help(root, args) }, nil
		case "completion": // cobra prints its help for a shell it does not know
			cmd.Args, cmd.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return root
}

// help prints the help of a command; cobra's own takes one that is not there for success.
func help(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil || len(rest) > 0 {
		return usagef("no help for %q: there is no such command", strings.Join(args, " "))
	}
	cmd.InitDefaultHelpFlag()
	return cmd.Help()
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  sdtool version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.println("sdtool " + versionString())
		},
	}
}

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/commands.md anew")

// reference writes the help of every command as Markdown.
func reference() string {
	var b strings.Builder
	b.WriteString("# Commands\n\nThis page is made from the help texts: `go test ./cmd/sdtool -run TestReference -update` writes it anew.\n\n")
	root := newRoot(&app{})
	b.WriteString(root.Long + "\n\n")
	for _, line := range strings.Split(strings.TrimSpace(exitCodes), "\n") {
		if code, what, found := strings.Cut(strings.TrimSpace(line), " "); found && code != "Exit" {
			fmt.Fprintf(&b, "- exit code %s: %s\n", code, strings.TrimSpace(what))
		}
	}
	b.WriteString("\nFlags of every command: `--quiet` (`-q`) prints errors only, `--verbose` (`-v`) what is decided for each tensor.\n" +
		"Flags may be written with `_` for `-`. `SDTOOL_CPU=generic|avx2|avx512` chooses the instruction set that\n" +
		"quantizers use; results are the same with any.\n")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd != root {
			section(&b, cmd)
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub)
			}
		}
	}
	walk(root)
	b.WriteString("\n## sdtool completion\n\nPrint the completion script for bash, zsh, fish or powershell: `sdtool completion bash --help` says how to load it.\n")
	return b.String()
}

func section(b *strings.Builder, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", cmd.CommandPath(), strings.TrimSpace(text))
	if !cmd.Runnable() {
		return
	}
	fmt.Fprintf(b, "```\n%s\n", cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	b.WriteString("```\n")
	flags := cmd.LocalNonPersistentFlags()
	flags.SortFlags = cmd.Flags().SortFlags
	if usages := strings.TrimRight(flags.FlagUsages(), "\n"); usages != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", usages)
	}
}

// docs/commands.md is what the commands say of themselves.
func TestReference(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "commands.md")
	want := reference()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, string(got) == want, "docs/commands.md is out of date: go test ./cmd/sdtool -run TestReference -update")
}

// Commands in the documentation exist, and so do their flags.
func TestDocumentedCommands(t *testing.T) {
	for _, path := range []string{"README.md", "docs/recipes.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
		require.NoError(t, err)
		code, count := false, 0
		for _, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			line = strings.TrimPrefix(line, "$ ")
			if !code || !strings.HasPrefix(line, "sdtool ") || strings.HasPrefix(line, "sdtool: ") {
				continue
			}
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, " > ")
			count++
			cmd, rest, err := newRoot(&app{}).Find(strings.Fields(strings.ReplaceAll(line, "'", ""))[1:])
			require.NoError(t, err, line)
			require.NoError(t, cmd.ParseFlags(rest), line)
			require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), line)
		}
		require.Greater(t, count, 5, path)
	}
}

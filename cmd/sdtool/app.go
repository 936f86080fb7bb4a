package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/quant"
)

// app is what commands have of the world: tests give them another.
type app struct {
	stdout   io.Writer
	stderr   io.Writer
	terminal bool // stderr is one
	getenv   func(string) string

	quiet   bool
	verbose bool
	started bool // flags and arguments were understood
}

// Exit codes; root.go lists them for users.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// usageError marks an error in what was asked for, not in doing it.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errSilent ends a command with exit code 1 after it has said why itself.
var errSilent = errors.New("already reported")

// run runs one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := a.code(ctx, err)
	if err != nil && !errors.Is(err, errSilent) {
		a.report(err, code)
	}
	return code
}

func (a *app) code(ctx context.Context, err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage), !a.started:
		return exitUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

// report prints an error on one line, and the place in a type rule below it.
func (a *app) report(err error, code int) {
	if code == exitInterrupted {
		fmt.Fprintln(a.stderr, "sdtool: interrupted; no output is left half written (with --resume, the same command goes on from here)")
		return
	}
	fmt.Fprintf(a.stderr, "sdtool: %s\n", clean(strings.ReplaceAll(err.Error(), "\n", "; ")))
	var rule *convert.RuleError
	if errors.As(err, &rule) {
		fmt.Fprintf(a.stderr, "  %s\n", strings.ReplaceAll(rule.Caret(), "\n", "\n  "))
	}
	if code == exitUsage {
		fmt.Fprintln(a.stderr, "Try 'sdtool --help', or --help after a command.")
	}
}

// warn prints a warning unless --quiet is given.
func (a *app) warn(text string) {
	if !a.quiet {
		fmt.Fprintf(a.stderr, "warning: %s\n", clean(text))
	}
}

// version is set by the linker for releases.
var version = ""

// versionString returns the version: the linker's, the module's or "devel".
func versionString() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// begin runs before every command, once its flags and arguments are understood.
func (a *app) begin(*cobra.Command, []string) error {
	// Results are the same with any instruction set; tests go through all.
	cpu, err := quant.ParseCPU(a.getenv("SDTOOL_CPU"))
	if err == nil {
		err = quant.UseCPU(cpu)
	}
	if err != nil {
		return usagef("SDTOOL_CPU: %w", err)
	}
	a.started = true
	return nil
}

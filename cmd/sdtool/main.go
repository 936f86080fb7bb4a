// Command sdtool converts, quantizes and inspects checkpoints of diffusion
// models. Run sdtool --help, or read docs/commands.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup asks to outlive the terminal
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// After the first signal the default comes back: a second one ends the
	// process at once.
	context.AfterFunc(ctx, stop)
	a := &app{
		stdout:   os.Stdout,
		stderr:   os.Stderr,
		terminal: term.IsTerminal(int(os.Stderr.Fd())),
		getenv:   os.Getenv,
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sdtool/sdtool/convert"
)

// The flags here refuse a wrong value while the command line is read, before any
// file is looked at.

// intFlag is a whole number within limits.
type intFlag struct {
	value    *int
	min, max int
}

// intVar adds a flag for a number from low to high; its default is what it points to.
func intVar(fs *pflag.FlagSet, p *int, name, short string, low, high int, usage string) {
	fs.VarP(&intFlag{p, low, high}, name, short, usage)
}

// threadsFlag adds -t/--threads.
func threadsFlag(fs *pflag.FlagSet, p *int, usage string) {
	intVar(fs, p, "threads", "t", 0, 1<<16, usage)
}

func (f *intFlag) String() string {
	if f.value == nil { // pflag makes a zero value to compare defaults with
		return "0"
	}
	return strconv.Itoa(*f.value)
}

func (f *intFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < f.min || n > f.max {
		return fmt.Errorf("want a whole number from %d to %d", f.min, f.max)
	}
	*f.value = n
	return nil
}

func (f *intFlag) Type() string { return "int" }

// choiceFlag is one of several words.
type choiceFlag struct {
	value *string
	words []string
}

// choiceVar adds a flag for one of some words; its default is what it points to.
func choiceVar(fs *pflag.FlagSet, p *string, name, usage string, words ...string) {
	fs.Var(&choiceFlag{p, words}, name, usage)
}

func (f *choiceFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f *choiceFlag) Set(s string) error {
	if !slices.Contains(f.words, s) {
		last := len(f.words) - 1
		return fmt.Errorf("want %s", strings.TrimPrefix(strings.Join(f.words[:last], ", ")+" or "+f.words[last], " or "))
	}
	*f.value = s
	return nil
}

func (f *choiceFlag) Type() string { return "string" }

// pathFlag is a path that is given at most once: of two, one would be ignored.
type pathFlag struct{ value *string }

func pathVar(fs *pflag.FlagSet, p *string, name, short, usage string) {
	fs.VarP(&pathFlag{p}, name, short, usage)
}

func (f *pathFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f *pathFlag) Set(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("want a path, found nothing")
	case *f.value != "":
		return fmt.Errorf("given twice, %q before", *f.value)
	}
	*f.value = s
	return nil
}

func (f *pathFlag) Type() string { return "string" }

// noArguments refuses arguments with a word on what takes their place.
func noArguments(instead string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("unexpected argument %q: %s", args[0], instead)
		}
		return nil
	}
}

// typeFlag is a type that tensors can be converted to, or "keep".
type typeFlag struct{ value *string }

func (f *typeFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f *typeFlag) Set(s string) error {
	if !strings.EqualFold(s, convert.KeepName) {
		if _, err := convert.ParseTarget(s); err != nil {
			return err
		}
	}
	*f.value = s
	return nil
}

func (f *typeFlag) Type() string { return "string" }

// arguments wants one argument for each of the names.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("want %s, found %s", strings.Join(names, " and "), plural(len(args), "argument"))
		}
		return nil
	}
}

// someArguments wants at least one argument.
func someArguments(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("want at least one %s", name)
		}
		return nil
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// clean escapes what a name from a file could do to a terminal or to the eye:
// control characters, bidirectional overrides and invalid UTF-8.
func clean(s string) string {
	plain := true
	for _, r := range s {
		if !printable(r) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case printable(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

func printable(r rune) bool { return r != utf8.RuneError && (unicode.IsPrint(r) || r == '\t') }

func (a *app) println(s string) error {
	_, err := fmt.Fprintln(a.stdout, s)
	return err
}

func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.stdout, format, args...)
	return err
}

// summary is where commands say what they have done: nowhere with --quiet.
func (a *app) summary() io.Writer {
	if a.quiet {
		return io.Discard
	}
	return a.stdout
}

// tell prints a line about what was done, unless --quiet is given.
func (a *app) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(a.summary(), format, args...)
	return err
}

// printJSON prints a value as indented JSON.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table prints rows in columns, without blanks at the ends of lines.
type table struct {
	out  io.Writer
	text bytes.Buffer
	w    *tabwriter.Writer
}

func newTable(out io.Writer) *table {
	t := &table{out: out}
	t.w = tabwriter.NewWriter(&t.text, 0, 4, 2, ' ', 0)
	return t
}

func (t *table) row(cells ...any) {
	parts := make([]string, len(cells))
	for i, c := range cells {
		parts[i] = clean(fmt.Sprint(c))
	}
	fmt.Fprintln(t.w, strings.Join(parts, "\t"))
}

func (t *table) flush() error {
	if err := t.w.Flush(); err != nil {
		return err
	}
	for line := range bytes.Lines(t.text.Bytes()) {
		if _, err := fmt.Fprintf(t.out, "%s\n", bytes.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// plural returns "1 tensor" or "2 tensors".
func plural[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

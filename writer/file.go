package writer

import (
	"bufio"
	"fmt"
	"io"
)

// FileOptions are the rules for WriteFile.
type FileOptions struct {
	Overwrite bool     // replace an existing output
	Inputs    []string // files that the output must not be
}

// WriteFile writes a file whose size is not known before, with the same
// promises as Write: all or nothing, never over an input, locked.
func WriteFile(path string, o FileOptions, write func(io.Writer) error) error {
	t, err := openTarget(osSystem{}, path, o.Overwrite, o.Inputs, false)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(&appender{out: t.out}, 1<<16)
	if err := write(b); err != nil {
		return t.abandon(err)
	}
	if err := b.Flush(); err != nil {
		return t.abandon(fmt.Errorf("write %s: %w", path, err))
	}
	return t.commit(-1)
}

// appender writes at the end of an output.
type appender struct {
	out output
	at  int64
}

func (a *appender) Write(p []byte) (int, error) {
	if err := writeAll(a.out, p, a.at); err != nil {
		return 0, err
	}
	a.at += int64(len(p))
	return len(p), nil
}

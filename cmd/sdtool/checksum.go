package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/sdtool/sdtool/check"
	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/writer"
)

func newChecksumCommand(a *app) *cobra.Command {
	var checkIt, overwrite, asJSON bool
	var sidecar, mode string
	var threads int
	cmd := &cobra.Command{
		Use:   "checksum FILE",
		Short: "Write or check SHA-256 sums of a checkpoint and its tensors",
		Long: `Compute the SHA-256 of every file and of every tensor's bytes, and write them beside
the checkpoint (FILE.sha256.json). With --check they are compared with what was written
before; what differs is named, tensor by tensor, and the exit code is 1.`,
		Example: `  sdtool checksum model.safetensors
  sdtool checksum model.safetensors --check`,
		Args: arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			cp, err := openWhole(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, cp.Close()) }()
			if sidecar == "" {
				sidecar = check.SidecarPath(args[0])
			}
			if !checkIt && !asJSON {
				if err := writer.Check(sidecar, overwrite, cp.Paths); err != nil {
					return err
				}
			}
			p := a.newProgress(mode, "checksum")
			sums, err := check.Sum(cmd.Context(), cp.Tensors, cp.Paths, check.Options{Threads: threads, Progress: counted(p, 2*cp.Size)})
			p.close(err)
			if err == nil {
				err = cp.Check()
			}
			switch {
			case err != nil:
				return err
			case checkIt:
				return a.checkSums(sums, sidecar)
			case asJSON:
				return a.printJSON(sums)
			}
			if err := writer.WriteFile(sidecar, writer.FileOptions{Overwrite: overwrite, Inputs: cp.Paths}, func(w io.Writer) error { return sums.Write(w) }); err != nil {
				return err
			}
			return a.tell("wrote %s: %s, %s\n", clean(sidecar), plural(len(sums.Files), "file"), plural(len(sums.Tensors), "tensor"))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&checkIt, "check", false, "compare with the sums written before")
	flags.StringVar(&sidecar, "sums", "", "file of sums (default: FILE.sha256.json, in a folder sdtool.sha256.json)")
	flags.BoolVar(&overwrite, "overwrite", false, "replace an existing file of sums")
	flags.BoolVar(&asJSON, "json", false, "print the sums instead of writing them")
	threadsFlag(flags, &threads, "workers (default: processors)")
	progressFlag(cmd, &mode)
	return cmd
}

// openWhole opens a checkpoint that must be complete.
func openWhole(path string) (*convert.Checkpoint, error) {
	cp, err := convert.Open(path, convert.OpenOptions{})
	if err != nil && cp != nil {
		err = errors.Join(err, cp.Close())
	}
	if err != nil {
		return nil, err
	}
	return cp, nil
}

// counted adds up the bytes that workers report.
func counted(p *progress, total int64) func(int64, string) {
	var done atomic.Int64
	return func(n int64, name string) { p.set(done.Add(n), total, name) }
}

func (a *app) checkSums(sums *check.Sums, sidecar string) error {
	recorded, err := check.ReadSums(sidecar)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no sums to compare with: %w ('sdtool checksum FILE' writes them)", err)
	}
	if err != nil {
		return err
	}
	bad := sums.Against(recorded)
	if len(bad) == 0 {
		return a.printf("%s and %s are as %s says\n", plural(len(sums.Files), "file"), plural(len(sums.Tensors), "tensor"), clean(sidecar))
	}
	t := newTable(a.stdout)
	for _, m := range bad {
		t.row(m.Kind, m.Name, m.Msg)
	}
	if err := t.flush(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %s from what it says", sidecar, plural(len(bad), "difference"))
}

func newDiffCommand(a *app) *cobra.Command {
	var asJSON bool
	var mode string
	var threads int
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Show how two checkpoints differ",
		Long: `List tensors that only one of two checkpoints has, changed types, shapes and bytes, and
changed metadata. The formats may differ: shapes and metadata that a GGUF file records
for other formats count as those. The exit code is 1 if there is any difference.`,
		Example: `  sdtool diff old.safetensors new.safetensors
  sdtool diff model.gguf rebuilt.gguf --json`,
		Args: arguments("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			changes, err := a.diff(cmd.Context(), args, mode, threads)
			if err != nil {
				return err
			}
			return a.printChanges(changes, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	threadsFlag(flags, &threads, "workers (default: processors)")
	progressFlag(cmd, &mode)
	return cmd
}

func (a *app) diff(ctx context.Context, args []string, mode string, threads int) (changes []check.Change, err error) {
	var sides [2]check.Side
	var total int64
	for i, path := range args {
		cp, err := openWhole(path)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, cp.Close()) }()
		sides[i] = check.Side{Tensors: cp.Unfolded(), Metadata: metadataText(cp)}
		total = cp.Size
	}
	p := a.newProgress(mode, "diff")
	changes, err = check.Diff(ctx, sides[0], sides[1], check.Options{Threads: threads, Progress: counted(p, total)})
	p.close(err)
	return changes, err
}

// metadataText returns a checkpoint's metadata as text, in one form for all formats:
// what GGUF writes of safetensors' metadata has a prefix there, and what it writes of
// shapes shows in the shapes.
func metadataText(cp *convert.Checkpoint) map[string]string {
	md := make(map[string]string)
	for k, v := range cp.Strings {
		md[k] = v
	}
	for _, kv := range cp.Metadata {
		if !convert.RecordsShapes(kv.Key) {
			text, ok := kv.Value.Str()
			if !ok {
				text = kv.Value.Format(kv.Value.Len())
			}
			md[strings.TrimPrefix(kv.Key, convert.StringsPrefix)] = text
		}
	}
	return md
}

// changeJSON is one entry of 'diff --json'.
type changeJSON struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Msg  string `json:"detail"`
}

func (a *app) printChanges(changes []check.Change, asJSON bool) error {
	if asJSON {
		list := make([]changeJSON, 0, len(changes))
		for _, c := range changes {
			list = append(list, changeJSON{c.Name, c.Kind, c.Msg})
		}
		if err := a.printJSON(list); err != nil {
			return err
		}
	} else {
		t := newTable(a.stdout)
		for _, c := range changes {
			t.row(c.Kind, c.Name, c.Msg)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if len(changes) > 0 {
		return errSilent
	}
	if asJSON {
		return nil
	}
	return a.println("no difference")
}

package writer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// stopAfter cancels a write after some chunks.
func stopAfter(chunks int) (context.Context, func(Progress)) {
	ctx, cancel := context.WithCancelCause(context.Background())
	n := 0
	return ctx, func(Progress) {
		if n++; n == chunks {
			cancel(errors.New("stopped"))
		}
	}
}

func TestResumeGivesTheSameBytes(t *testing.T) {
	in := t.TempDir()
	p, want := samplePlan(t, in)
	for _, chunks := range []int{1, 2, 5, 9} {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		require.NoError(t, os.WriteFile(out, []byte("old"), 0o666))
		o := Options{Path: out, Overwrite: true, Threads: 2, Resume: true, Fingerprint: "a"}
		ctx, progress := stopAfter(chunks)
		o.Progress = progress
		_, err := Write(ctx, p, o)
		require.ErrorContains(t, err, "stopped")
		only(t, dir, "out", ".out.sdtool-tmp", ".out.sdtool-journal")
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, "old", string(got))

		o.Progress = nil
		other := o
		other.Fingerprint = "b"
		_, err = Write(context.Background(), p, other)
		require.ErrorIs(t, err, ErrResume)

		res, err := Write(context.Background(), p, o)
		require.NoError(t, err)
		require.Positive(t, res.Resumed)
		got, err = os.ReadFile(out)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		only(t, dir, "out")
	}
}

func TestResumeDoesNotFillTwice(t *testing.T) {
	calls := new(atomic.Int64)
	p := plan(entry("a", 40<<20, &counter{unit: 1, calls: calls}))
	out := filepath.Join(t.TempDir(), "out")
	ctx, progress := stopAfter(4)
	_, err := Write(ctx, p, Options{Path: out, Threads: 1, Resume: true, Progress: progress})
	require.Error(t, err)
	before := calls.Load()
	_, err = Write(context.Background(), p, Options{Path: out, Threads: 1, Resume: true})
	require.NoError(t, err)
	require.Equal(t, int64(10), calls.Load(), "%d before the stop", before)
}

// Bytes that were lost or changed in the meantime are written again, and a
// journal with a cut or senseless line does no harm.
func TestResumeChecksWhatIsThere(t *testing.T) {
	p, want := samplePlan(t, t.TempDir())
	for name, damage := range map[string]func(t *testing.T, temp, journal string){
		"bytes": func(t *testing.T, temp, _ string) {
			f, err := os.OpenFile(temp, os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = f.WriteAt(make([]byte, 8<<20), 64)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		},
		"cut file": func(t *testing.T, temp, _ string) { require.NoError(t, os.Truncate(temp, 5<<20)) },
		"lines": func(t *testing.T, _, journal string) {
			f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("1 2\n-1 0 1 00000000.\n99999 0 1 00000000.\n0 5 4 0.\n0 0 9223372036854775807 00000000.\n" + strings.Repeat("x", 50))
			require.NoError(t, err)
			require.NoError(t, f.Close())
		},
	} {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		ctx, progress := stopAfter(6)
		_, err := Write(ctx, p, Options{Path: out, Threads: 1, Resume: true, Progress: progress})
		require.Error(t, err)
		damage(t, filepath.Join(dir, ".out.sdtool-tmp"), filepath.Join(dir, ".out.sdtool-journal"))
		_, err = Write(context.Background(), p, Options{Path: out, Threads: 3, MaxMemory: 5 << 20, Resume: true})
		require.NoError(t, err, name)
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), name)
		only(t, dir, "out")
	}
}

func TestARunWithoutResumeForgetsTheJournal(t *testing.T) {
	p, want := samplePlan(t, t.TempDir())
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	ctx, progress := stopAfter(3)
	_, err := Write(ctx, p, Options{Path: out, Resume: true, Progress: progress})
	require.Error(t, err)
	_, err = Write(context.Background(), p, Options{Path: out})
	require.NoError(t, err)
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	only(t, dir, "out")
}

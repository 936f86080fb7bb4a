package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

// counter fills a tensor with a pattern that depends on the position alone.
type counter struct {
	unit, scratch int64
	seed          byte
	calls         *atomic.Int64
	fail          error // returned from unit failAt on
	failAt        int64
	panics        bool
}

func (c *counter) Unit() int64           { return c.unit }
func (c *counter) Scratch(n int64) int64 { return n * c.scratch }
func (c *counter) Fill(_ context.Context, dst []byte, first, n int64, s *Scratch) error {
	if c.calls != nil {
		c.calls.Add(1)
	}
	if c.fail != nil && first+n > c.failAt {
		return c.fail
	}
	if c.panics {
		panic("broken filler")
	}
	s.Bytes(0, n*c.scratch)
	for i := range dst {
		at := first*c.unit + int64(i)
		dst[i] = byte(at) ^ byte(at>>8) ^ byte(at>>16)*7 ^ c.seed
	}
	return nil
}

func (c *counter) bytes(n int64) []byte {
	out := make([]byte, n)
	_ = (&counter{unit: 1, seed: c.seed}).Fill(context.Background(), out, 0, n, &Scratch{})
	return out
}

// plan lays entries out with 32-byte alignment after a header.
func plan(entries ...Entry) *Plan {
	l := &tensor.Layout{Header: []byte("header of the file")}
	at := int64(64)
	for _, e := range entries {
		n, err := e.Bytes()
		if err != nil {
			panic(err)
		}
		l.Offsets = append(l.Offsets, at)
		at = (at + n + 31) / 32 * 32
	}
	l.Size = at
	return &Plan{Entries: entries, Layout: l}
}

func entry(name string, n int64, f Filler) Entry {
	return Entry{Info: tensor.Info{Name: name, DType: tensor.U8, Shape: []int64{n}}, Fill: f}
}

// samplePlan has fills and copies of many sizes, and returns what the file must hold.
func samplePlan(t *testing.T, dir string) (*Plan, []byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	raw := make([]byte, 40<<20)
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	in := filepath.Join(dir, "in.bin")
	require.NoError(t, os.WriteFile(in, raw, 0o666))
	f, err := os.Open(in)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	var entries []Entry
	var want [][]byte
	for i, n := range []int64{1, 100, 9 << 20, 0, 3*(1<<20) + 3, 33 << 20, 5} {
		c := &counter{unit: 1, scratch: 2, seed: byte(i)}
		entries = append(entries, entry(fmt.Sprint("fill", i), n, c))
		want = append(want, c.bytes(n))
		s := &tensor.Section{File: f, Path: in, Offset: int64(i), Length: n}
		entries = append(entries, Entry{Info: tensor.Info{Name: fmt.Sprint("copy", i), DType: tensor.U8, Shape: []int64{n}}, Copy: s, Order: Order{1, int64(100 - i)}})
		want = append(want, raw[i:int64(i)+n])
	}
	p := plan(entries...)
	file := make([]byte, p.Layout.Size)
	copy(file, p.Layout.Header)
	for i, w := range want {
		copy(file[p.Layout.Offsets[i]:], w)
	}
	return p, file
}

func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	require.ElementsMatch(t, names, got)
}

func TestSameBytesForAnyThreadsAndBudget(t *testing.T) {
	in := t.TempDir()
	p, want := samplePlan(t, in)
	for _, threads := range []int{0, 1, 2, 3, 16} {
		for _, budget := range []int64{0, 2 << 20, 5 << 20, 64 << 20} {
			dir := t.TempDir()
			out := filepath.Join(dir, "out.bin")
			var last Progress
			res, err := Write(context.Background(), p, Options{Path: out, Threads: threads, MaxMemory: budget, Progress: func(p Progress) {
				require.GreaterOrEqual(t, p.Done, last.Done)
				last = p
			}})
			require.NoError(t, err)
			require.Equal(t, int64(len(want)), res.Size)
			require.Equal(t, last.Total, last.Done)
			got, err := os.ReadFile(out)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), "threads %d budget %d", threads, budget)
			only(t, dir, "out.bin")
		}
	}
}

func TestFault067OneLargeTensorIsSharedByAllWorkers(t *testing.T) {
	calls := new(atomic.Int64)
	c := &counter{unit: 1 << 10, calls: calls}
	_, err := Write(context.Background(), plan(entry("big", 32<<20, c)), Options{Path: filepath.Join(t.TempDir(), "o"), Threads: 2})
	require.NoError(t, err)
	require.GreaterOrEqual(t, calls.Load(), int64(8))
}

func TestBudgetIsKept(t *testing.T) {
	p := plan(entry("small", 1<<20, &counter{unit: 1}), entry("wide", 4<<20, &counter{unit: 1 << 20, scratch: 1 << 20}))
	s, err := newSchedule(p, 8, 7<<20)
	require.NoError(t, err)
	require.Equal(t, 3, s.workers, "three units of 2 MiB fit in 7 MiB")
	for _, j := range s.jobs {
		require.LessOrEqual(t, cost(p.Entries[j.entry].Fill, j.n), int64(7<<20)/3)
	}
	_, err = newSchedule(p, 8, 1<<20)
	var budget *BudgetError
	require.ErrorAs(t, err, &budget)
	require.Equal(t, "wide", budget.Tensor)
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	require.NoError(t, os.WriteFile(in, []byte("input"), 0o666))
	old := filepath.Join(dir, "old")
	require.NoError(t, os.WriteFile(old, []byte("old"), 0o666))
	p := plan(entry("a", 10, &counter{unit: 1}))
	write := func(path string, overwrite bool) error {
		_, err := Write(context.Background(), p, Options{Path: path, Overwrite: overwrite, Inputs: []string{in}})
		return err
	}
	require.ErrorIs(t, write(old, false), ErrExists)
	require.ErrorIs(t, write(in, true), ErrInput)
	require.ErrorIs(t, write(dir, true), ErrTarget)
	require.ErrorIs(t, write("", true), ErrTarget)
	require.ErrorIs(t, write(filepath.Join(dir, "no", "out"), true), fs.ErrNotExist)
	require.Error(t, write(filepath.Join(in, "out"), true), "a file where a folder should be")
	got, err := os.ReadFile(old)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
	require.NoError(t, write(old, true))
	only(t, dir, "in", "old")
}

func TestFault018OutputIsAnInputUnderAnotherName(t *testing.T) {
	dir := t.TempDir()
	in, soft, hard := filepath.Join(dir, "in"), filepath.Join(dir, "soft"), filepath.Join(dir, "hard")
	require.NoError(t, os.WriteFile(in, []byte("input"), 0o666))
	if err := os.Symlink(in, soft); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	require.NoError(t, os.Link(in, hard))
	for _, path := range []string{in, soft, hard} {
		_, err := Write(context.Background(), plan(entry("a", 1, &counter{unit: 1})), Options{Path: path, Overwrite: true, Inputs: []string{in}})
		require.ErrorIs(t, err, ErrInput)
	}
	got, err := os.ReadFile(in)
	require.NoError(t, err)
	require.Equal(t, "input", string(got))
}

func TestOutputThroughASymbolicLinkKeepsTheLink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(real, []byte("old"), 0o666))
	if err := os.Symlink(real, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	_, err := Write(context.Background(), plan(entry("a", 10, &counter{unit: 1})), Options{Path: link, Overwrite: true})
	require.NoError(t, err)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
	got, err := os.ReadFile(real)
	require.NoError(t, err)
	require.Len(t, got, 96)
}

func TestErrorsNameTheTensorAndLeaveNothing(t *testing.T) {
	boom := errors.New("boom")
	for name, f := range map[string]*counter{
		"fails":  {unit: 1, fail: boom, failAt: 5 << 20},
		"panics": {unit: 1, panics: true},
	} {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		require.NoError(t, os.WriteFile(out, []byte("old"), 0o666))
		_, err := Write(context.Background(), plan(entry("ok", 1<<20, &counter{unit: 1}), entry("bad", 9<<20, f)), Options{Path: out, Overwrite: true})
		var te *TensorError
		require.ErrorAs(t, err, &te, name)
		require.Equal(t, "bad", te.Tensor)
		only(t, dir, "out")
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, "old", string(got))
	}
}

func TestCancelRemovesTheTemporaryFile(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("interrupted")
	_, err := Write(ctx, plan(entry("a", 64<<20, &counter{unit: 1})), Options{Path: filepath.Join(dir, "out"), Threads: 1, Progress: func(p Progress) { cancel(stop) }})
	require.ErrorIs(t, err, stop)
	only(t, dir)
}

func TestVerifyHasTheLastWord(t *testing.T) {
	dir := t.TempDir()
	changed := errors.New("changed")
	_, err := Write(context.Background(), plan(entry("a", 1, &counter{unit: 1})), Options{Path: filepath.Join(dir, "out"), Verify: func() error { return changed }})
	require.ErrorIs(t, err, changed)
	only(t, dir)
}

func TestTwoWritersOfOneOutput(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	p := plan(entry("a", 1<<20, &counter{unit: 1}))
	var second error
	_, err := Write(context.Background(), p, Options{Path: out, Progress: func(Progress) {
		_, second = Write(context.Background(), p, Options{Path: out})
	}})
	require.NoError(t, err)
	require.ErrorIs(t, second, ErrBusy)
}

func TestStaleTemporaryIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(tempPath(out), bytes.Repeat([]byte("stale"), 1000), 0o666))
	_, err := Write(context.Background(), plan(entry("a", 10, &counter{unit: 1})), Options{Path: out})
	require.NoError(t, err)
	only(t, dir, "out")
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	require.NotContains(t, string(got), "stale")
}

func TestLongAndForeignNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("n", 250), "模型 тест é.gguf", "with space"} {
		dir := t.TempDir()
		_, err := Write(context.Background(), plan(entry("a", 10, &counter{unit: 1})), Options{Path: filepath.Join(dir, name)})
		require.NoError(t, err)
		only(t, dir, name)
	}
}

func TestFault019FullDevice(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /dev/full here")
	}
	_, err := Write(context.Background(), plan(entry("a", 10, &counter{unit: 1})), Options{Path: "/dev/full", Overwrite: true})
	require.ErrorIs(t, err, ErrTarget)
}

func TestPlansThatMakeNoSense(t *testing.T) {
	for name, p := range map[string]*Plan{
		"unit":    plan(entry("a", 10, &counter{unit: 3})),
		"nothing": plan(Entry{Info: tensor.Info{Name: "a", DType: tensor.U8, Shape: []int64{4}}}),
		"copy":    plan(Entry{Info: tensor.Info{Name: "a", DType: tensor.U8, Shape: []int64{4}}, Copy: &tensor.Section{Length: 3}}),
	} {
		dir := t.TempDir()
		_, err := Write(context.Background(), p, Options{Path: filepath.Join(dir, "out")})
		require.ErrorContains(t, err, `"a"`, name)
		only(t, dir)
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 999949: "999.9 kB", 999950: "1.0 MB", 12300000000: "12.3 GB"} {
		require.Equal(t, want, FormatSize(n))
	}
}

package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

// brokenSystem is the real system with one call going wrong.
type brokenSystem struct {
	osSystem
	mu    sync.Mutex
	calls map[string]int
	op    string // which call
	nth   int    // from 1
	err   error
	short bool // write half of it, without an error
	once  bool // only this call, not the later ones
	free  int64
}

// fault reports whether this call of op goes wrong.
func (b *brokenSystem) fault(op string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = make(map[string]int)
	}
	b.calls[op]++
	n := b.calls[op]
	return op == b.op && (n == b.nth || n > b.nth && !b.once)
}

func (b *brokenSystem) Create(path string, keep bool) (output, error) {
	if b.fault("create") {
		return nil, b.err
	}
	out, err := b.osSystem.Create(path, keep)
	if err != nil {
		return nil, err
	}
	return &brokenOutput{out, b}, nil
}

func (b *brokenSystem) Rename(from, to string) error {
	if b.fault("rename") {
		return b.err
	}
	return b.osSystem.Rename(from, to)
}

func (b *brokenSystem) SyncDir(dir string) error {
	if b.fault("syncdir") {
		return b.err
	}
	return b.osSystem.SyncDir(dir)
}

func (b *brokenSystem) Free(dir string) (int64, bool) {
	if b.op == "free" {
		return b.free, true
	}
	return b.osSystem.Free(dir)
}

type brokenOutput struct {
	output
	sys *brokenSystem
}

func (o *brokenOutput) WriteAt(p []byte, off int64) (int, error) {
	if !o.sys.fault("write") {
		return o.output.WriteAt(p, off)
	}
	if !o.sys.short {
		return 0, o.sys.err
	}
	n, err := o.output.WriteAt(p[:len(p)/2], off)
	if err == nil {
		err = o.sys.err
	}
	return n, err
}

func (o *brokenOutput) CopyFrom(src io.ReaderAt, from, at, n int64) (int64, error) {
	if o.sys.fault("copy") {
		return 0, o.sys.err
	}
	return o.output.CopyFrom(src, from, at, n)
}

func (o *brokenOutput) Reserve(size int64) error {
	if o.sys.fault("reserve") {
		return o.sys.err
	}
	return o.output.Reserve(size)
}

func (o *brokenOutput) Sync() error {
	if o.sys.fault("sync") {
		return o.sys.err
	}
	return o.output.Sync()
}

func (o *brokenOutput) Size() (int64, error) {
	n, err := o.output.Size()
	if o.sys.fault("size") {
		return n - 1, o.sys.err
	}
	return n, err
}

func (o *brokenOutput) Close() error {
	err := o.output.Close()
	if o.sys.fault("close") {
		return o.sys.err
	}
	return err
}

// smallPlan has fills and copies, small enough to fail at every write of it.
func smallPlan(t *testing.T, dir string) (*Plan, []byte) {
	t.Helper()
	in := filepath.Join(dir, "in")
	raw := (&counter{unit: 1, seed: 9}).bytes(3000)
	require.NoError(t, os.WriteFile(in, raw, 0o666))
	f, err := os.Open(in)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	var entries []Entry
	for i := range 6 {
		n := int64(100 + i*333)
		entries = append(entries, entry(fmt.Sprint("fill", i), n, &counter{unit: 1, seed: byte(i)}))
	}
	info := tensor.Info{Name: "copy", DType: tensor.U8, Shape: []int64{3000}}
	entries = append(entries, Entry{Info: info, Copy: &tensor.Section{File: f, Path: in, Length: 3000}})
	p := plan(entries...)
	want := make([]byte, p.Layout.Size)
	copy(want, p.Layout.Header)
	for i, e := range entries[:6] {
		n, err := e.Bytes()
		require.NoError(t, err)
		copy(want[p.Layout.Offsets[i]:], (&counter{unit: 1, seed: byte(i)}).bytes(n))
	}
	copy(want[p.Layout.Offsets[6]:], raw)
	return p, want
}

// After any failure of any call the old output is whole, or there is none, and no
// temporary file is left.
func TestEveryCallThatCanFail(t *testing.T) {
	p, want := smallPlan(t, t.TempDir())
	for _, op := range []string{"create", "reserve", "write", "copy", "size", "sync", "rename", "syncdir", "close"} {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO, os.ErrPermission} {
			for nth := 1; nth <= 8; nth++ {
				for _, old := range []bool{false, true} {
					dir := t.TempDir()
					out := filepath.Join(dir, "out")
					if old {
						require.NoError(t, os.WriteFile(out, []byte("old"), 0o666))
					}
					sys := &brokenSystem{op: op, nth: nth, err: cause}
					_, err := Write(context.Background(), p, Options{Path: out, Overwrite: true, Threads: 1, system: sys})
					what := fmt.Sprintf("%s number %d, %v, old %v", op, nth, cause, old)
					if sys.calls[op] < nth {
						require.NoError(t, err, what)
						break
					}
					require.ErrorIs(t, err, cause, what)
					got, rerr := os.ReadFile(out)
					switch {
					case op == "syncdir" || op == "close" && !renameNeedsClose:
						// The rename has been done: the new file is whole.
						require.NoError(t, rerr, what)
						require.Equal(t, want, got, what)
						only(t, dir, "out")
					case old:
						require.NoError(t, rerr, what)
						require.Equal(t, "old", string(got), what)
						only(t, dir, "out")
					default:
						only(t, dir)
					}
				}
			}
		}
	}
}

func TestInterruptedAndShortWritesGoOn(t *testing.T) {
	p, want := smallPlan(t, t.TempDir())
	for _, sys := range []*brokenSystem{
		{op: "write", nth: 3, err: syscall.EINTR, once: true},
		{op: "write", nth: 2, err: syscall.EINTR, short: true, once: true},
		{op: "write", nth: 4, err: io.ErrShortWrite, short: true, once: true},
		{op: "write", nth: 4, short: true, once: true},
	} {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		_, err := Write(context.Background(), p, Options{Path: out, Threads: 1, system: sys})
		require.NoError(t, err)
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestAWriteThatStandsStillFails(t *testing.T) {
	p, _ := smallPlan(t, t.TempDir())
	_, err := Write(context.Background(), p, Options{Path: filepath.Join(t.TempDir(), "out"), Threads: 1, system: &brokenSystem{op: "write", nth: 2}})
	require.ErrorIs(t, err, io.ErrShortWrite)
}

func TestFault001SizeIsCheckedAfterWriting(t *testing.T) {
	p, _ := smallPlan(t, t.TempDir())
	dir := t.TempDir()
	_, err := Write(context.Background(), p, Options{Path: filepath.Join(dir, "out"), system: &brokenSystem{op: "size", nth: 1}})
	require.ErrorIs(t, err, ErrSize)
	only(t, dir)
}

func TestFault019DiskSpaceIsCheckedBeforeTheFirstByte(t *testing.T) {
	p, _ := smallPlan(t, t.TempDir())
	dir := t.TempDir()
	sys := &brokenSystem{op: "free", free: 1000}
	_, err := Write(context.Background(), p, Options{Path: filepath.Join(dir, "out"), system: sys})
	var space *SpaceError
	require.ErrorAs(t, err, &space)
	require.Equal(t, p.Layout.Size, space.Need)
	require.ErrorContains(t, err, "needs 8.8 kB, 1.0 kB free")
	require.Zero(t, sys.calls["write"])
	only(t, dir)
	// With nothing to go on with, --resume leaves nothing either.
	_, err = Write(context.Background(), p, Options{Path: filepath.Join(dir, "out"), Resume: true, system: sys})
	require.ErrorAs(t, err, &space)
	only(t, dir)
}

func TestReadsThatFail(t *testing.T) {
	for _, cause := range []error{syscall.EIO, io.ErrUnexpectedEOF} {
		dir := t.TempDir()
		s := &tensor.Section{File: brokenReader{cause}, Path: "in", Length: 100}
		e := Entry{Info: tensor.Info{Name: "a", DType: tensor.U8, Shape: []int64{100}}, Copy: s}
		_, err := Write(context.Background(), plan(e), Options{Path: filepath.Join(dir, "out")})
		require.ErrorIs(t, err, cause)
		var te *TensorError
		require.True(t, errors.As(err, &te))
		only(t, dir)
	}
}

type brokenReader struct{ err error }

func (r brokenReader) ReadAt([]byte, int64) (int, error) { return 0, r.err }

func TestWriteFileIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	require.NoError(t, WriteFile(out, FileOptions{}, func(w io.Writer) error {
		_, err := io.WriteString(w, "first")
		return err
	}))
	require.ErrorIs(t, WriteFile(out, FileOptions{}, nil), ErrExists)
	boom := errors.New("boom")
	require.ErrorIs(t, WriteFile(out, FileOptions{Overwrite: true}, func(w io.Writer) error {
		if _, err := io.WriteString(w, "second"); err != nil {
			return err
		}
		return boom
	}), boom)
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
	only(t, dir, "out")
}

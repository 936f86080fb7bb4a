package writer

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrResume is wrapped when an unfinished output cannot be gone on with, because
// it was made from other inputs or options.
var ErrResume = errors.New("the unfinished output was begun from other inputs or options; run without --resume to begin anew")

const (
	journalEnding = ".sdtool-journal"
	journalTitle  = "sdtool journal 1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journal records which chunks of a temporary file are written, with a checksum
// of each: after a crash only chunks whose bytes are still there count.
type journal struct {
	path string
	file *os.File
	mu   sync.Mutex
	done map[int][]stretch // by entry
	some bool              // a chunk was recorded, by this run or an earlier one
}

// stretch is a run of units (bytes for a copy) of an entry.
type stretch struct{ from, to int64 }

// journalPath is where the journal of an output is.
func journalPath(temp string) string {
	return strings.TrimSuffix(temp, tempEnding) + journalEnding
}

// identity names what a journal belongs to: the plan's file and the caller's fingerprint.
func identity(p *Plan, fingerprint string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%s\n", p.Layout.Size, fingerprint)
	h.Write(p.Layout.Header)
	return hex.EncodeToString(h.Sum(nil))
}

// openJournal reads the journal of an unfinished output and checks what it says
// against the temporary file, or begins one.
func openJournal(t *target, p *Plan, fingerprint string) (*journal, error) {
	j := &journal{path: journalPath(t.temp), done: make(map[int][]stretch)}
	title := journalTitle + " " + identity(p, fingerprint)
	old, err := os.Open(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j, j.begin(title)
	case err != nil:
		return nil, err
	}
	err = j.read(old, title, t.out, p)
	if err = errors.Join(err, old.Close()); err != nil {
		return nil, fmt.Errorf("go on with %s: %w", t.path, err)
	}
	j.file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0o666)
	return j, err
}

// begin makes an empty journal.
func (j *journal) begin(title string) (err error) {
	if j.file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o666); err != nil {
		return err
	}
	if _, err = j.file.WriteString(title + "\n"); err != nil {
		return errors.Join(err, j.file.Close())
	}
	return nil
}

// read takes over the chunks that are really there.
func (j *journal) read(r io.Reader, title string, out output, p *Plan) error {
	lines := bufio.NewScanner(r)
	if !lines.Scan() || lines.Text() != title {
		return ErrResume
	}
	buf := make([]byte, copyBuffer)
	for lines.Scan() {
		var entry int
		var s stretch
		var sum uint32
		// A line cut short by a crash, or damaged, is one chunk to write again.
		if n, err := fmt.Sscanf(lines.Text(), "%d %d %d %08x.", &entry, &s.from, &s.to, &sum); n != 4 || err != nil {
			continue
		}
		if entry < 0 || entry >= len(p.Entries) || s.from < 0 || s.to <= s.from {
			continue
		}
		e := &p.Entries[entry]
		unit := e.unit()
		size, err := e.Bytes()
		if err != nil || s.to > size/unit {
			continue
		}
		got, err := sumOf(out, p.Layout.Offsets[entry]+s.from*unit, (s.to-s.from)*unit, buf)
		if err == nil && got == sum {
			j.done[entry] = append(j.done[entry], s)
		}
	}
	for entry, list := range j.done {
		j.done[entry] = unite(list)
	}
	return lines.Err()
}

func sumOf(r io.ReaderAt, at, n int64, buf []byte) (uint32, error) {
	sum := uint32(0)
	for n > 0 {
		part := buf[:min(int64(len(buf)), n)]
		if got, err := r.ReadAt(part, at); got < len(part) {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, part)
		at, n = at+int64(len(part)), n-int64(len(part))
	}
	return sum, nil
}

// unite sorts stretches and joins those that touch.
func unite(list []stretch) []stretch {
	slices.SortFunc(list, func(a, b stretch) int {
		switch {
		case a.from < b.from:
			return -1
		case a.from > b.from:
			return 1
		}
		return 0
	})
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// has reports whether a job has been done by an earlier run.
func (j *journal) has(job job) bool {
	for _, s := range j.done[job.entry] {
		if s.from <= job.first && job.first+job.n <= s.to {
			return true
		}
	}
	return false
}

// add records a chunk that has been written.
func (j *journal) add(job job, sum uint32) error {
	line := fmt.Sprintf("%d %d %d %08x.\n", job.entry, job.first, job.first+job.n, sum)
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.WriteString(line); err != nil {
		return fmt.Errorf("write the journal %s: %w", filepath.Base(j.path), err)
	}
	j.some = true
	return nil
}

// useful reports whether there is anything to go on with.
func (j *journal) useful() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.some || len(j.done) > 0
}

func (j *journal) close() error { return j.file.Close() }

// remove closes and removes the journal.
func (j *journal) remove() error { return errors.Join(j.close(), os.Remove(j.path)) }

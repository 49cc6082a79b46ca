package xfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/xfer"
)

// Fetched is the result of a fetch, which --json prints.
type Fetched struct {
	Files   int     `json:"files"`         // that are whole now
	Bytes   int64   `json:"bytes"`         // that were transferred
	Resumed int64   `json:"resumed_bytes"` // that an earlier run has left, and that are right
	Present int     `json:"present_files"` // that were there before
	Seconds float64 `json:"seconds"`
	Gbits   float64 `json:"gbits"` // per second
	Rails   []Share `json:"rails"`
	LeftOut []Issue `json:"left_out,omitempty"`
	Failed  []Issue `json:"failed,omitempty"`
}

// A Share is what a rail has carried.
type Share struct {
	Rail  string  `json:"rail"`
	Bytes uint64  `json:"bytes"`
	Gbits float64 `json:"gbits"`
}

// An Issue is why a file is not here.
type Issue struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// maxEntries is the number of files and folders that a server may list, and maxNames the bytes of
// their paths.
const (
	maxEntries = 1 << 20
	maxNames   = 256 << 20
)

// A transfer fetches files into a folder, which nothing that the server says leaves.
type transfer struct {
	c    *client
	to   *os.Root
	mine *xfer.Memory
	peer *xfer.Peer

	seen         map[string]bool // paths that were listed
	names        int             // their bytes
	total        int64           // bytes of the files to fetch
	done         atomic.Int64
	bytes, reuse atomic.Int64

	mu     sync.Mutex
	files  []*file
	at     int // files before this one have been handed out
	result Fetched
}

// A file is fetched in pieces.
type file struct {
	name string
	entry
	part   *os.File    // what there is of it; nil before the first piece
	perm   fs.FileMode // those of Mode that the user's mask allows, at least
	had    int64       // bytes that an earlier run may have left there
	next   int64       // pieces before this place were handed out
	flying int         // pieces that are handed out, and not done
	err    error
}

// part returns the name of a file that isn't whole yet.
func part(name string) string {
	dir, base := path.Split(name)
	if len(base)+len(unfinished) > 255 {
		base = fmt.Sprintf("%x", sha256.Sum256([]byte(base)))
	}
	return dir + base + unfinished
}

// list adds the files at and below a path to the transfer.
func (t *transfer) list(name string) error {
	found := false
	err := t.c.list(name, func(e *entry) error {
		found = true
		return t.add(e)
	})
	if err == nil && !found {
		err = errors.New("the server says nothing about it")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", stranger.Text(name), err)
	}
	return nil
}

// add adds a file, or makes a folder. An error ends the list.
func (t *transfer) add(e *entry) error {
	if t.seen[string(e.Path)] {
		return nil
	}
	t.names += len(e.Path)
	if len(t.seen) == maxEntries || t.names > maxNames {
		return fmt.Errorf("there are more than %d files, or their names are too long", maxEntries)
	}
	t.seen[string(e.Path)] = true
	name, err := inside(e.Path)
	switch {
	case e.Unread:
		t.result.Failed = append(t.result.Failed, issue(e.Path, fmt.Errorf("the server says: %s", e.LeftOut)))
		return nil
	case e.LeftOut != "":
		t.result.LeftOut = append(t.result.LeftOut, issue(e.Path, errors.New(e.LeftOut)))
		return nil
	case err == nil && (e.Size < 0 || strings.HasSuffix(name, unfinished)):
		err = errors.New("no such file is served by ibv xfer")
	case err == nil && e.Folder:
		err = t.to.MkdirAll(name, 0o777)
	case err == nil:
		err = t.to.MkdirAll(path.Dir(name), 0o777)
	}
	if err != nil {
		t.result.Failed = append(t.result.Failed, issue(e.Path, err))
		return nil
	}
	if e.Folder {
		return nil
	}
	if info, err := t.to.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() == e.Size && info.ModTime().UnixNano() == e.Time {
		t.result.Present++
		return nil
	}
	if t.total += e.Size; t.total < 0 {
		return errors.New("the files have more than 2^63 bytes")
	}
	t.files = append(t.files, &file{name: name, entry: *e})
	return nil
}

func issue(name []byte, err error) Issue {
	return Issue{stranger.Text(string(name)), stranger.Text(reason(err))}
}

// run fetches the files. Its error has ended the connection, or is the context's.
func (t *transfer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.c.answers()
	var workers sync.WaitGroup
	for slot := range slots {
		workers.Go(func() {
			if err := t.work(ctx, slot); err != nil {
				cancel(err)
			}
		})
	}
	workers.Wait()
	for _, f := range t.files {
		if f.part != nil { // after the end of the connection
			f.part.Close()
		}
		if f.err != nil {
			t.result.Failed = append(t.result.Failed, issue(f.Path, f.err))
		}
	}
	t.result.Bytes, t.result.Resumed = t.bytes.Load(), t.reuse.Load()
	return context.Cause(ctx)
}

// A piece of a file goes through one slot.
type piece struct {
	*file
	off int64
	n   int
}

// work fetches pieces through a slot. An error says that the connection has ended.
func (t *transfer) work(ctx context.Context, slot int) error {
	for ctx.Err() == nil {
		p, ok := t.next()
		if !ok {
			return nil
		}
		err := t.fetch(ctx, slot, p)
		var lost lostError
		if errors.As(err, &lost) {
			return lost
		}
		t.ended(p, err)
	}
	return nil
}

// next hands out a piece, and opens its file if it is the first one.
func (t *transfer) next() (p piece, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; t.at < len(t.files); t.at++ {
		f := t.files[t.at]
		if f.part == nil && f.next == 0 && f.err == nil {
			f.err = f.open(t.to)
		} else if f.next >= f.Size {
			continue
		}
		if f.err != nil {
			continue
		}
		p := piece{f, f.next, int(min(f.Size-f.next, slotBytes))}
		f.next += slotBytes
		f.flying++
		return p, true
	}
	return p, false
}

var errTaken = errors.New("another fetch is writing it")

// open opens the file that the pieces are written to. A new one can be read by those only who may read the whole file.
// An old one may be another fetch's: that has it until it has its name.
func (f *file) open(to *os.Root) (err error) {
	name := part(f.name)
	if f.part, err = to.OpenFile(name, os.O_RDWR|os.O_CREATE, fs.FileMode(f.Mode)&0o777|0o600); err != nil {
		return err
	}
	err = lock(f.part)
	var info fs.FileInfo
	if err == nil {
		info, err = f.part.Stat()
	}
	if err == nil {
		if now, gone := to.Stat(name); gone != nil || !os.SameFile(info, now) {
			err = errTaken // up to just now
		}
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	if err == nil && info.Size() > f.Size {
		err = f.part.Truncate(f.Size)
	}
	if err != nil {
		f.part.Close()
		f.part = nil
		return err
	}
	f.had, f.perm = min(info.Size(), f.Size), info.Mode().Perm()
	return nil
}

var (
	errChanged = errors.New("the file has changed meanwhile")
	errSum     = errors.New("the checksum differs: the data was damaged on its way")
)

// fetch fetches a piece, unless it is there.
func (t *transfer) fetch(ctx context.Context, slot int, p piece) error {
	mine := t.mine.Slice(slot*slotBytes, p.n)
	was, there := uint32(0), p.off+int64(p.n) <= p.had
	if there {
		if _, err := p.part.ReadAt(mine.Bytes(), p.off); err != nil {
			return err
		}
		was = sum(mine.Bytes())
	}
	a, err := t.c.ask(request{Do: "get", Path: p.Path, Off: p.off, N: p.n, Slot: slot})
	switch {
	case err != nil:
		return err
	case a.Size != p.Size || a.Time != p.Time || a.N != p.n:
		return errChanged
	case there && was == a.Sum:
		t.reuse.Add(int64(p.n))
		t.done.Add(int64(p.n))
		return nil
	case p.n == 0:
		return nil
	}
	if err := t.peer.Read(ctx, mine, t.c.far.Slice(slot*slotBytes, p.n)); err != nil {
		return lostError{err}
	}
	if sum(mine.Bytes()) != a.Sum {
		return errSum
	}
	if _, err := p.part.WriteAt(mine.Bytes(), p.off); err != nil {
		return err
	}
	t.bytes.Add(int64(p.n))
	t.done.Add(int64(p.n))
	return nil
}

// ended counts a piece that has been fetched, or has failed. With the last one, the file gets its name.
func (t *transfer) ended(p piece, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := p.file
	if err != nil && f.err == nil {
		f.err = err
	}
	if f.flying--; f.flying > 0 || f.err == nil && f.next < f.Size {
		return
	}
	if f.err == nil {
		f.err = f.settle(t.to)
	}
	// Another fetch may take what is closed and has no name yet.
	if err = f.part.Close(); err != nil && f.err == nil {
		f.err = errors.Join(err, t.to.Rename(f.name, part(f.name)))
	}
	f.part = nil
	if f.err == nil {
		t.result.Files++
	}
}

// settle gives a whole file its name, its time, and those of its permissions that the user's mask allows.
func (f *file) settle(to *os.Root) error {
	changed := time.Unix(0, f.Time)
	name := part(f.name)
	if err := to.Chmod(name, fs.FileMode(f.Mode)&f.perm); err != nil {
		return err
	}
	if err := to.Chtimes(name, changed, changed); err != nil {
		return err
	}
	return to.Rename(name, f.name)
}

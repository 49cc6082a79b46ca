package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/flight"
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/text"
	"github.com/goverbs/goverbs/internal/tracing/event"
)

const recordUsage = `Usage: ibvtrace record [OPTION...] --all
       ibvtrace record [OPTION...] --cgroup DIR | -p PID | [--] COMMAND [ARG...]

Keep the last events in memory, as a flight recorder does. They are written to a file
when something fails, at SIGUSR1, and when "ibvtrace dump" asks for them. With BPF,
which is the default, no program stops, and if the recorder is killed, nothing of it
stays in the kernel.

  --keep DURATION  keep the events of this time (1m)
  --size MIB       but not more than this (64)
  --on WORD[,WORD]...
                   what makes the recorder write a file:
                     failed  a verb failed, or a completion
                     event   an error was told: as an asynchronous event, or an event
                             of the connection manager such as REJECTED
                     none    nothing
                   (failed,event). A file that something else than SIGUSR1 or dump has
                   caused is followed by the next when all events are new
  -d DIR           the files' folder, which is created if it doesn't exist (.)
  --files N        delete all but the last N files (20)
  --socket FILE    where "ibvtrace dump" asks (/run/ibvtrace/socket; without root,
                   ibvtrace/socket in $XDG_RUNTIME_DIR or ~/.cache)
  -e EXPR          keep only events that EXPR selects
  -h               print this help

Which programs are recorded, and how, is selected as in ibvtrace -h: --all, --cgroup,
-p, -f, --how; --data, --inject and --no-filter take ptrace.

Examples:
  ibvtrace record --all -d /var/log/ibvtrace
        for all programs of the machine, until ^C
  ibvtrace dump -o now.json; ibvtrace report now.json
        what happened in the last minute
  ibvtrace record --on none --keep 10m --size 512 ./server
        the last ten minutes of a server, for "ibvtrace dump" or kill -USR1
`

const dumpUsage = `Usage: ibvtrace dump [-o FILE] [--socket FILE]

Get the last events from the running "ibvtrace record", for report and figure.

  -o FILE        write to FILE instead of stdout
  --socket FILE  where the recorder listens (/run/ibvtrace/socket; without root,
                 ibvtrace/socket in $XDG_RUNTIME_DIR or ~/.cache)
  -h             print this help

Examples:
  ibvtrace dump | ibvtrace report -e failed -
  ibvtrace dump -o now.json; ibvtrace report --chrome now.perfetto.json now.json
`

type recordOptions struct {
	options
	keep   time.Duration
	size   int // MiB
	on     []flight.Alarm
	dir    string
	files  int
	socket string
}

// defaultSocket returns where a recorder of this user listens. Only root may write below /run.
func defaultSocket(uid int, runtime string, cache func() (string, error)) string {
	dir, err := runtime, error(nil)
	if dir == "" {
		dir, err = cache()
	}
	if uid == 0 || err != nil {
		dir = "/run"
	}
	return filepath.Join(dir, "ibvtrace", "socket")
}

func ownSocket() string {
	return defaultSocket(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"), os.UserCacheDir)
}

// maxMiB bounds what a recorder keeps.
const maxMiB = 1 << 20

func recordFlags(o *recordOptions) *flag.FlagSet {
	f := flag.NewFlagSet("ibvtrace record", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.DurationVar(&o.keep, "keep", time.Minute, "keep the events of this `DURATION`")
	f.IntVar(&o.size, "size", 64, "but not more than `MIB`")
	o.on = flight.Alarms
	f.Func("on", "write a file at `WORD`: failed, event or none", func(s string) error {
		o.on = nil
		for word := range strings.SplitSeq(s, ",") {
			switch {
			case word == "none":
			case slices.Contains(flight.Alarms, flight.Alarm(word)):
				o.on = append(o.on, flight.Alarm(word))
			default:
				return fmt.Errorf("%q is not one of %s", word, strings.Join(alarmWords(), ", "))
			}
		}
		return nil
	})
	f.StringVar(&o.dir, "d", ".", "the files' folder, `DIR`")
	f.IntVar(&o.files, "files", 20, "delete all but the last `N` files")
	f.StringVar(&o.socket, "socket", ownSocket(), "where ibvtrace dump asks, `FILE`")
	f.Func("e", "keep events by `EXPR`; may be repeated", o.filter.Add)
	addTraceFlags(f, &o.options)
	return f
}

func alarmWords() []string {
	words := []string{"none"}
	for _, a := range flight.Alarms {
		words = append(words, string(a))
	}
	return words
}

// record keeps the last events, and writes them to files.
func record(args []string) error {
	var o recordOptions
	var err error
	if o.args, err = parse(recordFlags(&o), args); err != nil {
		return err
	}
	if err := o.checkTrace(); err != nil {
		return err
	}
	switch {
	case o.keep <= 0:
		return usageError{errors.New("--keep must be positive")}
	case o.size <= 0 || o.size > maxMiB:
		return usageError{fmt.Errorf("--size must be from 1 to %d", maxMiB)}
	case o.files <= 0:
		return usageError{errors.New("--files must be positive")}
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	listener, err := listen(o.socket)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w; --socket chooses another place for ibvtrace dump to ask", err)
	}
	if err != nil {
		return err
	}
	defer listener.Close()
	r := &recorder{o: &o, kept: flight.New(o.keep, o.size<<20)}
	go r.serve(listener)
	writeAtSignal(r)
	end, err := o.trace(r)
	r.Close()
	if err == nil {
		listener.Close()
		end.Exit()
	}
	return err
}

// A recorder is a Sink that keeps events, and writes them to files.
type recorder struct {
	o       *recordOptions
	kept    *flight.Recorder
	full    time.Time // when the alarm of the last file came
	skipped int       // alarms since then
	writing sync.WaitGroup
	files   sync.Mutex // one file is written at a time
}

// Event keeps an event, and writes a file if it is an alarm.
func (r *recorder) Event(e *event.Event) error {
	if r.o.filter.Match(e) {
		r.kept.Event(e)
	}
	why := flight.Raised(e, r.o.on)
	if why == "" {
		return nil
	}
	if now := e.Time.Add(e.Duration); r.full.IsZero() || now.Sub(r.full) >= r.o.keep {
		if r.skipped > 0 {
			why += fmt.Sprintf("; %d failures since the last file have none", r.skipped)
		}
		r.full, r.skipped = now, 0
		r.write(why, now)
	} else {
		r.skipped++
	}
	return nil
}

// Close waits for files that are being written.
func (r *recorder) Close() error {
	r.writing.Wait()
	return nil
}

// write writes what is kept by now to a file. It does not wait for the disk.
func (r *recorder) write(why string, at time.Time) {
	taken := r.kept.Take("written because of " + why)
	r.writing.Go(func() {
		r.files.Lock()
		defer r.files.Unlock()
		name, err := r.store(taken, at)
		if err != nil {
			fmt.Fprintf(os.Stderr, "ibvtrace record: %v\n", err)
			return
		}
		fmt.Fprintf(os.Stderr, "ibvtrace record: %s: %s\n", name, text.Clean(why))
	})
}

// Files have names such as ibvtrace-20261128T021046.123456.json, which sort by time.
const (
	filePrefix, fileSuffix = "ibvtrace-", ".json"
	fileTime               = "20060102T150405.000000"
)

// store stores a file, and deletes the oldest ones.
func (r *recorder) store(taken io.WriterTo, at time.Time) (name string, err error) {
	name = filepath.Join(r.o.dir, filePrefix+at.UTC().Format(fileTime)+fileSuffix)
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = taken.WriteTo(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	all, err := os.ReadDir(r.o.dir) // in order
	all = slices.DeleteFunc(all, func(e os.DirEntry) bool {
		_, other := time.Parse(filePrefix+fileTime+fileSuffix, e.Name())
		return other != nil
	})
	for _, old := range all[:max(0, len(all)-r.o.files)] {
		if gone := os.Remove(filepath.Join(r.o.dir, old.Name())); err == nil {
			err = gone
		}
	}
	return name, err
}

// serve answers dump.
func (r *recorder) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			r.kept.Take("written because of ibvtrace dump").WriteTo(c) // it fails if dump has gone
			c.Close()
		}()
	}
}

type dumpOptions struct{ output, socket string }

func dumpFlags(o *dumpOptions) *flag.FlagSet {
	f := flag.NewFlagSet("ibvtrace dump", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.output, "o", "", "write to `FILE`")
	f.StringVar(&o.socket, "socket", ownSocket(), "where the recorder listens, `FILE`")
	return f
}

// dump gets the events from the running recorder.
func dump(args []string) error {
	var o dumpOptions
	rest, err := parse(dumpFlags(&o), args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q; -o names a file", rest[0])}
	}
	c, err := net.Dial("unix", o.socket)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("no ibvtrace record listens on %s", o.socket)
		}
		return err
	}
	defer c.Close()
	out, err := openOutput(o.output, os.Stdout)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, c); err != nil {
		return err
	}
	out.close()
	return out.err
}

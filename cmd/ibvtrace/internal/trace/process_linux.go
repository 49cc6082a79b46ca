//go:build amd64 || arm64

package trace

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

// A fileKind is what an open file is, as far as RDMA goes.
type fileKind uint8

const (
	fileOther   fileKind = iota
	fileUverbs           // /dev/infiniband/uverbsN
	fileCM               // /dev/infiniband/rdma_cm
	fileChannel          // completion channel
	fileAsync            // asynchronous events
	fileEvents           // one of the two
	fileDevx             // mlx5's own events
)

// A file is an open file: several descriptors, in several processes, may lead
// to it. Objects belong to it.
type file struct {
	id     int // counts the files of a run
	kind   fileKind
	name   string // of fileDevx
	device string // "rxe0"
	driver uapi.RdmaDriverId
	before bool // was open before ibvtrace came
	legacy bool // gets commands by write(2)

	parent  *file // of the events: the uverbs file
	objects map[objectKey]*object
	offsets map[uint64]string // what is there to be mapped
	users   int               // descriptors
}

// A process is a traced process.
type process struct {
	pid     int
	comm    string // when it last did something
	threads int
	fds     map[int]*file
	rdma    bool // it had such files
	renames bool // it names threads by way of /proc

	// all: every system call stops, because it was attached to or takes no
	// filters. Else those that its filters choose stop.
	all bool
	// What it has filters for: descriptors, and all from one on.
	watched      map[int]watching
	watchedAbove int // 0: none
	given        int // filters that it has from ibvtrace

	// own are the filters that it has itself, of any of its threads. Those that could
	// not be read are empty.
	own []*program

	data *dataTrace // nil: its data verbs are not traced

	recording   *recording // nil: all its verbs stop
	recordTries int        // to start one
	nested      bool       // it is in a namespace that has other ids
}

// inherit makes the process a copy of its parent's at the fork.
func (p *process) inherit(parent *process) {
	p.all = parent.all
	p.watched, p.watchedAbove = maps.Clone(parent.watched), parent.watchedAbove
	p.given, p.own = parent.given, slices.Clone(parent.own)
	for fd, f := range parent.fds {
		p.setFD(fd, f)
	}
	if p.recording = parent.recording; p.recording != nil {
		p.recording.users++
		if p.nested {
			p.endRecording() // who does what in it would not be known
		}
	}
	if parent.data != nil {
		p.data = parent.data.clone()
		p.data.told = p.data.emptyPolls(p.pid) // the rest is the parent's to tell
	}
}

// setFD notes that a descriptor is a file now, nil: none of RDMA's.
func (p *process) setFD(fd int, f *file) {
	if old := p.fds[fd]; old != nil {
		old.users--
		if p.recording != nil {
			p.recording.memory.Allow(fd, false)
		}
	}
	if f == nil {
		delete(p.fds, fd)
		return
	}
	p.fds[fd] = f
	p.rdma = true
	f.users++
}

// afterExec forgets what the new program has not.
func (p *process) afterExec() {
	p.data = nil
	for fd, f := range p.fds {
		if now := identify(p.pid, fd); now.kind == fileOther || now.kind == fileUverbs && now.device != f.device {
			p.setFD(fd, nil)
		}
	}
}

// gone forgets the process.
func (p *process) gone() {
	for fd := range p.fds {
		p.setFD(fd, nil)
	}
}

// newFile makes known a file that a descriptor of the process leads to.
func (t *tracer) newFile(p *process, fd int, f file) *file {
	t.files++
	f.id = t.files
	f.objects = make(map[objectKey]*object)
	p.setFD(fd, &f)
	return &f
}

// file returns the file behind a descriptor, nil if it has nothing to do with RDMA.
// One that is not known yet was opened before ibvtrace came or by another way.
func (t *tracer) file(th *thread, fd int) *file {
	if f := th.proc.fds[fd]; f != nil {
		return f
	}
	f := identify(th.tid, fd)
	if f.kind == fileOther {
		return nil
	}
	f.before = true
	if f.kind == fileEvents {
		f.parent = th.proc.onlyUverbs()
	}
	return t.newFile(th.proc, fd, f)
}

// onlyUverbs returns the process's uverbs file if there is just one.
func (p *process) onlyUverbs() *file {
	var only *file
	for _, f := range p.fds {
		if f.kind == fileUverbs && f != only {
			if only != nil {
				return nil
			}
			only = f
		}
	}
	return only
}

// maxFilters bounds how many filters a process gets for single descriptors: the
// kernel runs each at every system call.
const maxFilters = 24

// watch makes what is done to a descriptor stop. The thread is at the exit of a
// system call.
func (t *tracer) watch(th *thread, fd int, f *file) {
	p, what := th.proc, f.watches()
	if p.all || what&^p.watched[fd] == 0 || p.watchedAbove > 0 && fd >= p.watchedAbove {
		return
	}
	above := len(p.watched) >= maxFilters
	filter := fdFilter(uint32(fd), above, what)
	if above {
		filter = fdFilter(uint32(fd), true, watchClose|watchRead|watchWrite)
	}
	in, err := t.inject(th.tid)
	if err == nil {
		err = in.addFilter(filter)
		if err == errDied {
			return
		}
		if err2 := in.done(); err == nil {
			err = err2
		}
	}
	if err != nil {
		if err == unix.ESRCH {
			return
		}
		t.stopAtAll(p)
		return
	}
	p.given++
	if above {
		p.watchedAbove = fd
	} else {
		p.watched[fd] |= what
	}
}

// stopAtAll has a process stop at every system call, which is slower, because it
// takes no more filters: it gave up the right to, or has filters of its own that do not
// allow it.
func (t *tracer) stopAtAll(p *process) {
	p.all = true
	for tid, th := range t.threads {
		if th.proc == p && th.running {
			interrupt(tid)
		}
	}
}

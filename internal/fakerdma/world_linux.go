// Package fakerdma is an RDMA device and a connection manager within a test's process, for tests of
// the packages above verbs and rdmacm on machines without a device. It answers their commands in
// place of the kernel, and carries out what they post at once, in the goroutine that posts it. So
// what happens depends on nothing but the order of the calls.
//
// The device has RC queue pairs, sends, RDMA writes and reads. What it is asked for and lacks fails the test.
package fakerdma

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// Host is the device's address.
const Host = "192.0.2.1"

const (
	nodeGUID = "0000:0000:0000:0007"

	// maxQueue is the device's limit of a queue.
	maxQueue = 1 << 10
)

// A World is the device, and the connection manager that knows it.
type World struct {
	// Step, if not nil, is called with each step before it is taken: a command of uverbs, as ibvtrace names it,
	// "cm " and a command of the connection manager, "open " and a node, and what the device's provider does, such
	// as "post receives". Its error is the step's. It is called without a lock.
	Step func(name string) error

	t    testing.TB
	root string

	mu       sync.Mutex
	held     bool // SetLink
	handles  uint32
	objects  map[uint32]*object
	qps      map[uint32]*qp // by number
	channels map[int]*os.File
	async    []*os.File
	nextPort uint16
	ids      map[uint32]*cmid
	cms      map[uintptr]*channel
}

// An object is one in the kernel.
type object struct {
	verb    string // the one that has made it
	channel int    // of a CQ: the descriptor, or 0
	user    uint64 // of a CQ: what its events say
	uses    []uint32
	start   uint64 // of an MR
	length  uint64
	access  uint32
}

var now struct {
	sync.Mutex
	world *World
}

func init() {
	provider.Register(&provider.Provider{Name: "fakerdma", Driver: uapi.RDMA_DRIVER_UNKNOWN, NewContext: newContext})
}

// New makes a World, which is there until the test ends. Meanwhile all of the process's devices and
// connections are its own. At the end nothing may be left in it.
func New(t testing.TB) *World {
	t.Helper()
	probe := []byte{0}
	if err := readOwn(uint64(uintptr(unsafe.Pointer(&probe[0]))), make([]byte, 1)); err == unix.ENOSYS {
		t.Skip("emulators of one program don't copy its memory")
	}
	w := &World{
		t: t, objects: make(map[uint32]*object), qps: make(map[uint32]*qp), channels: make(map[int]*os.File), nextPort: 40_000,
		ids: make(map[uint32]*cmid), cms: make(map[uintptr]*channel),
	}
	root := t.TempDir()
	for path, text := range map[string]string{
		"sys/class/infiniband_verbs/abi_version":         "6\n",
		"sys/class/infiniband_verbs/uverbs0/ibdev":       "fake0\n",
		"sys/class/infiniband_verbs/uverbs0/abi_version": "0\n",
		"sys/class/infiniband/fake0/node_type":           "1: CA\n",
		"sys/class/infiniband/fake0/node_guid":           nodeGUID + "\n",
		"sys/class/infiniband/fake0/sys_image_guid":      nodeGUID + "\n",
		"dev/infiniband/uverbs0":                         "",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now.Lock()
	defer now.Unlock()
	if now.world != nil {
		t.Fatal("there is another World")
	}
	now.world = w
	w.root = root
	restore, ok := kernel.Replace(inPlace{w})
	if !ok {
		t.Fatal("another kernel is in place")
	}
	t.Cleanup(func() {
		restore()
		now.Lock()
		defer now.Unlock()
		now.world = nil
		w.end()
	})
	return w
}

// inPlace is a World as the library sees it, in place of the kernel.
type inPlace struct{ w *World }

func (k inPlace) Root() string                             { return k.w.root }
func (k inPlace) OpenVerbs(string) (kernel.File, error)    { return k.w.openDevice() }
func (k inPlace) OpenCM(string) (*os.File, error)          { return k.w.openCM() }
func (k inPlace) WriteCM(fd uintptr, command []byte) error { return k.w.command(fd, command) }

// end releases what is not the kernel's any more.
func (w *World) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.channels {
		f.Close()
	}
	for _, f := range w.async {
		f.Close()
	}
	for _, ch := range w.cms {
		ch.w.Close()
	}
}

// Left lists the objects in the kernel and the connection manager's IDs, sorted.
func (w *World) Left() (left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		left = append(left, o.verb)
	}
	for range w.ids {
		left = append(left, "cm id")
	}
	for range w.qps {
		left = append(left, "queues of a QP")
	}
	slices.Sort(left)
	return left
}

// Listening returns the ports on which somebody listens.
func (w *World) Listening() (ports []uint16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.ids {
		if id.listening {
			ports = append(ports, id.src.Port())
		}
	}
	return ports
}

// Files is how many of the process's descriptors are the World's: it closes some later than the process closes
// theirs.
func (w *World) Files() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.channels) + len(w.async) + len(w.cms)
}

func (w *World) step(name string) error {
	if w.Step == nil {
		return nil
	}
	return w.Step(name)
}

// SetLink takes the link down, so that what is posted waits, or up again.
func (w *World) SetLink(up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held = !up; up {
		w.carryOut()
	}
}

// GiveUp ends what waits as the device does when it has repeated a message often enough.
func (w *World) GiveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.qps {
		if len(q.sends) > 0 {
			q.fail(uapi.IB_WC_RETRY_EXC_ERR)
		}
	}
}

// at returns what is at an address of this process, which the caller keeps.
func at[T any](addr uint64) *T {
	p := uintptr(addr)
	return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
}

// readOwn and writeOwn copy this process's memory as the kernel does, which the race detector doesn't see.
func readOwn(addr uint64, b []byte) error  { return copyOwn(addr, b, unix.ProcessVMReadv) }
func writeOwn(addr uint64, b []byte) error { return copyOwn(addr, b, unix.ProcessVMWritev) }

func copyOwn(addr uint64, b []byte, call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := call(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return errno
	}
	panic(fmt.Sprintf("fakerdma: %v is no errno", err))
}

// limits has room for everything.
func limits() uapi.IbUverbsExQueryDeviceResp {
	return uapi.IbUverbsExQueryDeviceResp{Base: uapi.IbUverbsQueryDeviceResp{
		MaxMrSize: math.MaxUint64, MaxQpRdAtom: 5, MaxQpInitRdAtom: 5, MaxQp: 1 << 20, MaxQpWr: maxQueue, MaxSge: 16,
		MaxCq: 1 << 20, MaxCqe: 8 * maxQueue, MaxMr: 1 << 20, MaxPd: 1 << 20, PhysPortCnt: 1,
	}}
}

func bytesOf(v any) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

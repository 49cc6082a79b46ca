package verbstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/kernel"
	"github.com/goverbs/goverbs/uapi"
)

// A Network has devices that can reach each other. Its methods are safe for concurrent use.
type Network struct {
	root    string
	restore func()

	mu      sync.Mutex
	closed  *sync.Cond // a device or an ID was closed
	devices []*Device
	fault   func(Request) Fault
	refusal func(string) syscall.Errno
	last    uint32 // the last handle or QP number
	qps     map[uint32]*qp
	cm      manager
	late    []lateWrite
	src     list // of the request being executed
	dst     list
}

// A Device is a device of a Network.
type Device struct {
	net    *Network
	number int // from 0
	addr   netip.Addr
	down   bool
	gone   bool
	gids   [][16]byte
	files  []*file
	mrs    map[uint32]*mr // by their keys
	ahs    map[uint32]uapi.IbUverbsAhAttr
	groups map[[16]byte][]*qp
}

// New opens a Network with devices that have the given addresses, as Open does, and closes it when
// the test ends. Off Linux it skips the test.
func New(t testing.TB, addrs ...netip.Addr) *Network {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("verbstest: package verbs isn't supported on " + runtime.GOOS)
	}
	n, err := Open(addrs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Open replaces the machine's devices by those of a Network, until Close. There is one Network at a
// time, so tests that need one can't be parallel, unless they share it.
//
// The devices have the given addresses, and are named vt0, vt1 and so on. Without addresses there
// are two, with 192.0.2.1 and 192.0.2.2. The first one also has 127.0.0.1.
func Open(addrs ...netip.Addr) (*Network, error) {
	if len(addrs) == 0 {
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1}), netip.AddrFrom4([4]byte{192, 0, 2, 2})}
	}
	root, err := os.MkdirTemp("", "verbstest")
	if err != nil {
		return nil, err
	}
	n := &Network{root: root, qps: make(map[uint32]*qp), last: 16}
	n.closed = sync.NewCond(&n.mu)
	n.cm.init(n)
	for i, addr := range addrs {
		d := &Device{net: n, number: i, addr: addr.Unmap(), mrs: make(map[uint32]*mr), ahs: make(map[uint32]uapi.IbUverbsAhAttr), groups: make(map[[16]byte][]*qp)}
		guid := d.guid()
		guid[0] ^= 2
		d.gids = append(d.gids, [16]byte(append([]byte{0xfe, 0x80, 7: 0}, guid[:]...)), addr.As16())
		if i == 0 && addr != loopback {
			d.gids = append(d.gids, loopback.As16())
		}
		if err := d.describe(); err != nil {
			return nil, errors.Join(err, os.RemoveAll(root))
		}
		n.devices = append(n.devices, d)
	}
	var ok bool
	if n.restore, ok = kernel.Replace(inPlace{n}); !ok {
		return nil, errors.Join(errors.New("verbstest: there is another Network, which isn't closed"), os.RemoveAll(root))
	}
	return n, nil
}

// patience is how long Close waits for objects that are closed in the background, as by package rsocket.
const patience = 30 * time.Second

// Close restores the machine's devices. It returns an error that lists the devices and IDs of
// the connection manager that were left open.
func (n *Network) Close() error {
	if n == nil {
		return nil
	}
	n.restore()
	n.mu.Lock()
	defer n.mu.Unlock()
	end := time.AfterFunc(patience, n.closed.Broadcast)
	defer end.Stop()
	for start := time.Now(); len(n.left()) > 0 && time.Since(start) < patience; {
		n.closed.Wait()
	}
	err := os.RemoveAll(n.root)
	if list := n.left(); len(list) > 0 {
		err = errors.Join(fmt.Errorf("verbstest: left open: %s", strings.Join(list, ", ")), err)
	}
	return err
}

// Left lists the open objects, sorted: devices, the objects on them, and IDs of the connection manager. A
// test compares the lists before and after.
func (n *Network) Left() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.left()
}

func (n *Network) left() (list []string) {
	for _, d := range n.devices {
		for _, f := range d.files {
			list = append(list, "device "+d.Name())
			for _, o := range f.objects {
				list = append(list, fmt.Sprintf("%s on %s", strings.ToUpper(strings.TrimPrefix(fmt.Sprintf("%T", o), "*verbstest.")), d.Name()))
			}
		}
	}
	for _, id := range n.cm.ids {
		is := "bound to"
		if id.state == cmListening {
			is = "listening on"
		}
		list = append(list, fmt.Sprintf("ID %s %v", is, id.src))
	}
	slices.Sort(list)
	return list
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Device returns the i-th device, from 0.
func (n *Network) Device(i int) *Device { return n.devices[i] }

// Name returns the device's name, for verbs.Open.
func (d *Device) Name() string { return fmt.Sprintf("vt%d", d.number) }

// Addr returns the device's address.
func (d *Device) Addr() netip.Addr {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	return d.addr
}

// guid returns the node GUID, that of the interface with the MAC address 02:00:00:76:74:NN.
func (d *Device) guid() [8]byte { return [8]byte{0, 0, 0, 0xff, 0xfe, 0x76, 0x74, byte(d.number)} }

// has reports whether an address is the device's.
func (d *Device) has(addr netip.Addr) bool {
	return !d.gone && slices.Contains(d.gids, addr.WithZone("").As16())
}

// describe writes the device's directories.
func (d *Device) describe() error {
	guid := d.guid()
	g := fmt.Sprintf("%04x:%04x:%04x:%04x\n", binary.BigEndian.Uint16(guid[:]), binary.BigEndian.Uint16(guid[2:]), binary.BigEndian.Uint16(guid[4:]), binary.BigEndian.Uint16(guid[6:]))
	node, class := fmt.Sprintf("uverbs%d", d.number), filepath.Join("sys/class/infiniband", d.Name())
	for _, f := range [][2]string{
		{"dev/infiniband/" + node, ""},
		{"sys/class/infiniband_verbs/" + node + "/ibdev", d.Name() + "\n"},
		{"sys/class/infiniband_verbs/" + node + "/abi_version", "2\n"},
		{class + "/node_type", "1: CA\n"},
		{class + "/node_guid", g},
		{class + "/sys_image_guid", g},
		{class + "/parent", d.Name() + "\n"},
		{class + "/ports/1/pkeys/0", "0xffff\n"},
	} {
		path := filepath.Join(d.net.root, f[0])
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f[1]), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// inPlace is the Network in the kernel's place, as the library sees it.
type inPlace struct{ *Network }

func (n inPlace) Root() string { return n.root }

func (n inPlace) OpenVerbs(node string) (kernel.File, error) {
	if errno := n.refused("open " + filepath.Base(node)); errno != 0 {
		return nil, errno
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.devices {
		if filepath.Base(node) == fmt.Sprintf("uverbs%d", d.number) && !d.gone {
			f := &file{dev: d, objects: make(map[uint32]any), channels: make(map[uint32]*os.File), mapped: make(map[uint64]*ring)}
			d.files = append(d.files, f)
			return f, nil
		}
	}
	return nil, syscall.ENOENT
}

// SetPort takes the device's link down, or up again. While it is down, no packets pass between the device
// and the others.
func (d *Device) SetPort(up bool) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.gone || d.down != up {
		return
	}
	d.down = !up
	event := uapi.IB_EVENT_PORT_ERR
	if up {
		event = uapi.IB_EVENT_PORT_ACTIVE
	}
	for _, f := range d.files {
		f.event(event, 1)
	}
	if up {
		d.net.run()
	}
}

// SetAddr gives the device another address, as if its network interface had got it in place of the old one.
// Packets to the old one are lost from then on.
func (d *Device) SetAddr(addr netip.Addr) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.gone {
		return
	}
	d.addr = addr.Unmap()
	d.gids[1] = addr.As16()
	for _, f := range d.files {
		f.event(uapi.IB_EVENT_GID_CHANGE, 1)
	}
}

// Remove removes the device, as if it were unplugged. It can't be opened again.
func (d *Device) Remove() {
	n := d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if d.gone {
		return
	}
	d.gone = true
	for _, name := range []string{fmt.Sprintf("dev/infiniband/uverbs%d", d.number), fmt.Sprintf("sys/class/infiniband_verbs/uverbs%d", d.number), "sys/class/infiniband/" + d.Name()} {
		os.RemoveAll(filepath.Join(n.root, name)) // a device that stays can't be opened
	}
	for _, f := range d.files {
		f.event(uapi.IB_EVENT_DEVICE_FATAL, 0)
		f.drop()
	}
	n.cm.removed(d)
}

// SetFault sets the function that decides what happens to each request that needs the network.
// Nil, the default, executes all. The function is called with one request at a time, while the
// Network is locked. It must not call methods of the Network or of its devices, nor the library.
func (n *Network) SetFault(f func(Request) Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
	n.run()
}

// run makes all queue pairs try their waiting requests, after those that are late.
func (n *Network) run() {
	n.arrive()
	for _, num := range slices.Sorted(maps.Keys(n.qps)) {
		n.qps[num].run()
	}
}

// SetRefusal sets the function that decides which commands the kernel refuses: those for which it returns
// an errno. Nil, the default, refuses none. Commands have the names of the kernel's headers in lower
// case: "create_qp", "rdma_connect", "post_send", "req_notify_cq" for arming a CQ, "mmap" for each queue,
// and "open uverbs0" and "open rdma_cm" for files. The function is called before the command is run, by
// the command's goroutine, and may be called concurrently. It must not call the library. It may call
// methods of the Network, for instance to take a link down in the middle of a setup.
func (n *Network) SetRefusal(f func(command string) syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusal = f
}

// refused returns the errno with which a command is refused, or 0.
func (n *Network) refused(command string) syscall.Errno {
	n.mu.Lock()
	f := n.refusal
	n.mu.Unlock()
	if f == nil {
		return 0
	}
	return f(command)
}

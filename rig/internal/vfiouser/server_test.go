//go:build linux

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// scratch is a device whose BAR0 is memory that it alone has, and whose BAR2 is memory that
// the client maps.
type scratch struct {
	bar    [4096]byte
	mapped *os.File
	resets int
}

func (s *scratch) Size(region uint32) uint64 {
	if region == RegionBAR0 || region == RegionBAR2 {
		return uint64(len(s.bar))
	}
	return 0
}
func (s *scratch) File(region uint32) *os.File {
	if region == RegionBAR2 {
		return s.mapped
	}
	return nil
}
func (s *scratch) Read(region uint32, offset uint64, data []byte)  { copy(data, s.bar[offset:]) }
func (s *scratch) Write(region uint32, offset uint64, data []byte) { copy(s.bar[offset:], data) }
func (s *scratch) Reset()                                          { s.resets++ }

type client struct {
	t      *testing.T
	c      *net.UnixConn
	id     uint16
	server *Server
	device *scratch
	done   chan error
	mu     sync.Mutex
	fds    []int // of the last reply
}

func (c *client) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// memory returns the device's view of the memory at addr.
func (c *client) memory(addr uint64, n int) (b []byte) {
	c.do(func() { b = c.server.Memory.Bytes(addr, n) })
	return b
}

func connect(t *testing.T) *client {
	t.Helper()
	return connectTo(t, &scratch{})
}

// connectTo returns a client of a server of this device.
func connectTo(t *testing.T, d *scratch) *client {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		return c.(*net.UnixConn)
	}
	c := &client{t: t, c: conn(fds[0]), device: d, done: make(chan error, 1)}
	c.server = NewServer(d, 4, c.do)
	serverSide := conn(fds[1])
	go func() { c.done <- c.server.Serve(serverSide) }()
	t.Cleanup(func() { c.c.Close() })
	return c
}

// call sends a command and returns the reply's body and error number.
func (c *client) call(command uint16, body []byte, fds ...int) ([]byte, unix.Errno) {
	c.t.Helper()
	c.id++
	header := make([]byte, headerSize)
	binary.LittleEndian.PutUint16(header, c.id)
	binary.LittleEndian.PutUint16(header[2:], command)
	binary.LittleEndian.PutUint32(header[4:], uint32(headerSize+len(body)))
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.c.WriteMsgUnix(append(header, body...), oob, nil); err != nil {
		c.t.Fatal(err)
	}
	m, err := receive(c.c)
	if err != nil {
		c.t.Fatal(err)
	}
	if m.id != c.id || m.command != command || m.flags&flagReply == 0 {
		c.t.Fatalf("answer %+v to command %d", m, command)
	}
	c.fds = m.fds
	if m.flags&flagError != 0 {
		return nil, unix.EINVAL
	}
	return m.body, 0
}

func memfd(t *testing.T, size int64) (int, []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(data) })
	return fd, data
}

func long(values ...uint64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func TestVersion(t *testing.T) {
	c := connect(t)
	body, errno := c.call(cmdVersion, append([]byte{0, 0, 0, 0}, "{}\x00"...))
	if errno != 0 || !bytes.Equal(body[:4], make([]byte, 4)) {
		t.Fatalf("% x %v", body, errno)
	}
	if !json.Valid(bytes.TrimRight(body[4:], "\x00")) {
		t.Errorf("capabilities %q", body[4:])
	}
	if _, errno := c.call(cmdVersion, []byte{1, 0, 0, 0}); errno == 0 {
		t.Error("another major version was taken")
	}
}

func TestMemory(t *testing.T) {
	c := connect(t)
	const page = 4096
	fd, data := memfd(t, 4*page)
	mapping := func(flags uint32, offset, addr, size uint64) []byte {
		return append(words(32, flags), long(offset, addr, size)...)
	}
	if _, errno := c.call(cmdDMAMap, mapping(3, page, 0x10000, 2*page), fd); errno != 0 {
		t.Fatal(errno)
	}
	if _, errno := c.call(cmdDMAMap, mapping(3, 0, 0x11000, page), fd); errno == 0 {
		t.Error("addresses were mapped twice")
	}
	if _, errno := c.call(cmdDMAMap, mapping(3, 0, 0x20000, page)); errno != 0 {
		t.Error("addresses without memory:", errno)
	}
	b := c.memory(0x10ffe, 4)
	if b == nil {
		t.Fatal("mapped memory is not there")
	}
	copy(b, "RDMA")
	if string(data[2*page-2:2*page+2]) != "RDMA" {
		t.Error("the device's write went elsewhere")
	}
	for _, bad := range []uint64{0, 0xffff, 0x11ffd, 0x12000, 0x20000, ^uint64(0)} {
		if c.memory(bad, 4) != nil {
			t.Errorf("there is memory at %#x", bad)
		}
	}
	if c.memory(0x10000, -1) != nil {
		t.Error("there is negative memory")
	}
	if _, errno := c.call(cmdDMAUnmap, append(words(24, 0), long(0x10000, 2*page)...)); errno != 0 {
		t.Fatal(errno)
	}
	if c.memory(0x10ffe, 4) != nil {
		t.Error("unmapped memory is there")
	}
}

func TestRegions(t *testing.T) {
	c := connect(t)
	body, errno := c.call(cmdGetInfo, words(16, 0, 0, 0))
	if errno != 0 || binary.LittleEndian.Uint32(body[8:]) != regionCount {
		t.Fatalf("% x %v", body, errno)
	}
	body, errno = c.call(cmdGetRegionInfo, words(32, 0, RegionBAR0, 0, 0, 0, 0, 0))
	if errno != 0 || binary.LittleEndian.Uint64(body[16:]) != 4096 {
		t.Errorf("% x %v", body, errno)
	}
	if _, errno := c.call(cmdRegionWrite, append(append(long(8), words(RegionBAR0, 4)...), "ibv!"...)); errno != 0 {
		t.Error(errno)
	}
	body, errno = c.call(cmdRegionRead, append(long(8), words(RegionBAR0, 4)...))
	if errno != 0 || string(body[16:]) != "ibv!" {
		t.Errorf("%q %v", body, errno)
	}
	for _, bad := range [][]byte{
		append(long(4094), words(RegionBAR0, 4)...),
		append(long(^uint64(0)), words(RegionBAR0, 4)...),
		append(long(0), words(RegionConfig, 4)...),
		append(long(0), words(RegionBAR0, maxTransfer+1)...),
		{},
	} {
		if _, errno := c.call(cmdRegionRead, bad); errno == 0 {
			t.Errorf("% x was read", bad)
		}
		if _, errno := c.call(cmdRegionWrite, bad); errno == 0 {
			t.Errorf("% x was written", bad)
		}
	}
}

func TestMappedRegion(t *testing.T) {
	fd, memory := memfd(t, 4096)
	own, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	mapped := os.NewFile(uintptr(own), "")
	c := connectTo(t, &scratch{mapped: mapped})
	defer func() {
		c.c.Close()
		<-c.done
		mapped.Close()
	}()
	const mappable = 4
	body, errno := c.call(cmdGetRegionInfo, words(32, 0, RegionBAR0, 0, 0, 0, 0, 0))
	if errno != 0 || binary.LittleEndian.Uint32(body[4:])&mappable != 0 || len(c.fds) != 0 {
		t.Errorf("BAR0: % x %v, files %v", body, errno, c.fds)
	}
	body, errno = c.call(cmdGetRegionInfo, words(32, 0, RegionBAR2, 0, 0, 0, 0, 0))
	if errno != 0 || binary.LittleEndian.Uint32(body[4:])&mappable == 0 || len(c.fds) != 1 {
		t.Fatalf("BAR2: % x %v, files %v", body, errno, c.fds)
	}
	defer unix.Close(c.fds[0])
	if _, err := unix.Pwrite(c.fds[0], []byte("ibv!"), 8); err != nil {
		t.Fatal(err)
	}
	if string(memory[8:12]) != "ibv!" {
		t.Errorf("the file isn't the region's: % x", memory[:16])
	}
}

func TestInterrupts(t *testing.T) {
	c := connect(t)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const eventfd, trigger = 4, 32
	if _, errno := c.call(cmdSetIRQs, words(20, eventfd|trigger, irqMSIX, 0, 4)); errno != 0 {
		t.Fatal("deaf vectors:", errno)
	}
	c.server.Interrupts.Raise(2)
	if _, errno := c.call(cmdSetIRQs, words(20, eventfd|trigger, irqMSIX, 2, 1), fd); errno != 0 {
		t.Fatal(errno)
	}
	c.server.Interrupts.Raise(2)
	c.server.Interrupts.Raise(3)
	c.server.Interrupts.Raise(99)
	var count [8]byte
	if _, err := unix.Read(fd, count[:]); err != nil || binary.NativeEndian.Uint64(count[:]) != 1 {
		t.Errorf("% x %v", count, err)
	}
	if _, errno := c.call(cmdSetIRQs, words(20, eventfd|trigger, irqMSIX, 3, 2)); errno == 0 {
		t.Error("more vectors than there are")
	}
}

func TestGone(t *testing.T) {
	c := connect(t)
	if _, errno := c.call(999, nil); errno == 0 {
		t.Error("an unknown command was carried out")
	}
	c.c.Close()
	if err := <-c.done; err != nil {
		t.Error(err)
	}
	if c.device.resets != 1 {
		t.Errorf("%d resets when the client went", c.device.resets)
	}
}

//go:build amd64 || arm64

package calls

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/uapi"
)

// opened returns a decoder, and a thread that has this process's memory and has opened the
// file as descriptor 5.
func opened(f tracee.File) (*Decoder, *tracee.Thread, *tracee.File) {
	t, th := withFiles()
	th.TID, th.Proc.PID = os.Getpid(), os.Getpid()
	return t, th, t.NewFile(th.Proc, 5, f)
}

// memory returns memory that stays where it is, and its address. It begins with b.
func memory(t *testing.T, b []byte) ([]byte, uint64) {
	m, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	copy(m, b)
	return m, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m))))
}

// head returns the header of a command by write(2).
func head(command uint32, in, out uint16) []byte {
	b := binary.NativeEndian.AppendUint32(nil, command)
	return binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(b, in), out)
}

// returns ends a call with a result.
func returns(th *tracee.Thread, c *tracee.Call, ret int64) {
	c.Returned, c.Ret = true, ret
	c.Finish(th, c)
}

// TestCMObjects: the end of an ID is known, and the result of a command that succeeds is 0.
func TestCMObjects(t *testing.T) {
	d, th, f := opened(tracee.File{Kind: tracee.FileCM})
	destroy := uapi.RdmaUcmDestroyId{Id: 7}
	_, addr := memory(t, append(head(uapi.RDMA_USER_CM_CMD_DESTROY_ID, 16, 4), unsafe.Slice((*byte)(unsafe.Pointer(&destroy)), unsafe.Sizeof(destroy))...))
	k := tracee.KeyOf(tracee.ClassCMID, 7)
	f.Made(k)
	c := d.EnterWrite(th, 5, addr, 24)
	if c == nil || c.Problem != nil || c.FD != 5 || c.File != f {
		t.Fatalf("%+v", c)
	}
	returns(th, c, 24)
	if c.Ret != 0 || !slices.Equal(c.Ended, []tracee.ObjectKey{k}) || f.Objects[k].Alive {
		t.Errorf("result %d, ended %v", c.Ret, c.Ended)
	}
	failed := d.EnterWrite(th, 5, addr, 24)
	failed.Errno = unix.EINVAL
	returns(th, failed, -int64(unix.EINVAL))
	if failed.Ret != -int64(unix.EINVAL) || len(failed.Ended) > 0 {
		t.Errorf("failed: result %d, ended %v", failed.Ret, failed.Ended)
	}
}

// TestWrittenVerb: an object that a verb by write(2) has made is known. The doorbell of rxe is
// no verb.
func TestWrittenVerb(t *testing.T) {
	d, th, f := opened(tracee.File{Kind: tracee.FileUverbs, Driver: uapi.RDMA_DRIVER_RXE})
	m, addr := memory(t, head(uapi.IB_USER_VERBS_CMD_ALLOC_PD, 4, 1))
	const response = 64
	binary.NativeEndian.PutUint64(m[8:], addr+response)
	c := d.EnterWrite(th, 5, addr, 16)
	if c == nil || c.Problem != nil || c.Name != "alloc_pd" {
		t.Fatalf("%+v", c)
	}
	binary.NativeEndian.PutUint32(m[response:], 9)
	returns(th, c, 16)
	k := tracee.KeyOf(uapi.UVERBS_OBJECT_PD, 9)
	if !slices.Equal(c.Made, []tracee.ObjectKey{k}) || f.Objects[k] == nil || !f.Objects[k].Alive {
		t.Errorf("made %v", c.Made)
	}

	copy(m, head(uapi.IB_USER_VERBS_CMD_POST_SEND, 4, 1))
	for driver, want := range map[uapi.RdmaDriverId]bool{uapi.RDMA_DRIVER_RXE: false, uapi.RDMA_DRIVER_SIW: true} {
		f.Driver = driver
		if c := d.EnterWrite(th, 5, addr, 16); (c != nil) != want {
			t.Errorf("driver %v: posting is a verb: %t", driver, !want)
		}
	}
}

// TestWrittenElsewhere: a write to a file of events is no command.
func TestWrittenElsewhere(t *testing.T) {
	d, th, _ := opened(tracee.File{Kind: tracee.FileChannel})
	_, addr := memory(t, head(uapi.IB_USER_VERBS_CMD_ALLOC_PD, 4, 1))
	for _, fd := range []int{5, 6} {
		if c := d.EnterWrite(th, fd, addr, 16); c != nil {
			t.Errorf("descriptor %d: %+v", fd, c)
		}
	}
}

// TestUnknownEvent: bytes read that are no known event are shown as they are.
func TestUnknownEvent(t *testing.T) {
	for _, kind := range []tracee.FileKind{tracee.FileChannel, tracee.FileAsync, tracee.FileDevx} {
		d, th, _ := opened(tracee.File{Kind: kind})
		_, addr := memory(t, []byte("event"))
		c := d.EnterRead(th, 5, addr, 4096)
		returns(th, c, 5)
		if len(c.Results) != 1 || c.Results[0].Name != "event" || string(c.Results[0].Value.Bytes) != "event" {
			t.Errorf("file of kind %v: %+v", kind, c.Results)
		}
	}
}

package rdmacm

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/uapi"
)

// A command may wait for another one on the same ID, or for a peer or a network interface.
// Other goroutines don't wait for it.
func TestOthersGoOn(t *testing.T) {
	file, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ch, err := newChannel(file)
	if err != nil {
		t.Fatal(err)
	}
	var node uint32
	if err := ch.raw.Control(func(fd uintptr) { node = uint32(fd) }); err != nil {
		t.Fatal(err)
	}
	syscalltest.Test(t, syscalltest.Filter{Number: unix.SYS_WRITE, Arg: 0, Value: node}, func() error {
		f := newFrame()
		defer f.release()
		in[uapi.RdmaUcmConnect](f)
		return ch.run(uapi.RDMA_USER_CM_CMD_CONNECT, f)
	})
}

// Faulty is a program to make fail: it calls verbs on /dev/null, and reads events of the
// connection manager from /dev/zero, and prints the outcomes. It reads one byte first.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uapi"
)

func main() {
	fmt.Println(os.Getpid())
	os.Stdin.Read(make([]byte, 1))
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	zero, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	for range 5 {
		hdr := &uapi.IbUverbsIoctlHdr{Length: uapi.IbUverbsIoctlHdrAttrsOffset, ObjectId: uapi.UVERBS_OBJECT_PD, MethodId: uapi.UVERBS_METHOD_PD_DESTROY}
		begin := time.Now()
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, null.Fd(), uapi.RDMA_VERBS_IOCTL, uintptr(unsafe.Pointer(hdr)))
		slow := ""
		if time.Since(begin) >= time.Second {
			slow = " slowly"
		}
		fmt.Printf("%s%s\n", unix.ErrnoName(errno), slow)
	}
	for _, what := range []uapi.RdmaCmEventType{uapi.RDMA_CM_EVENT_ADDR_RESOLVED, uapi.RDMA_CM_EVENT_ESTABLISHED, uapi.RDMA_CM_EVENT_ESTABLISHED} {
		// /dev/zero does not write the response.
		response := make([]byte, 320)
		binary.NativeEndian.PutUint32(response[12:], uint32(what))
		command := binary.NativeEndian.AppendUint32(nil, uapi.RDMA_USER_CM_CMD_GET_EVENT)
		command = binary.NativeEndian.AppendUint16(command, 8)
		command = binary.NativeEndian.AppendUint16(command, uint16(len(response)))
		command = binary.NativeEndian.AppendUint64(command, uint64(uintptr(unsafe.Pointer(&response[0]))))
		if _, err := unix.Write(int(zero.Fd()), command); err != nil {
			panic(err)
		}
		fmt.Printf("%s %d\n", uapi.EnumRdmaCmEventType.Short(uint64(binary.NativeEndian.Uint32(response[12:]))), binary.NativeEndian.Uint32(response[16:]))
	}
}

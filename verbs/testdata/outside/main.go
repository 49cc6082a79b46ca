// Outside is a program with a provider of its own, on a kernel that it plays itself.
package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"example.com/outside/erdma"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
	"github.com/goverbs/goverbs/verbs"
)

func main() {
	var ends [2]int
	check(syscall.Pipe2(ends[:], syscall.O_CLOEXEC))
	c, err := verbs.OpenFake(ends[0], answer)
	check(err)
	fmt.Println("opened device", erdma.Contexts[0].DevID)
	pd, err := c.AllocPD()
	check(err)
	cq, err := c.CreateCQ(verbs.CQOptions{MaxCQE: 4})
	check(err)
	qp, err := pd.CreateQP(verbs.QPOptions{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	check(err)
	// The kernel makes the QP ready to send by itself.
	_, _, err = qp.Query()
	check(err)
	n, err := qp.PostSend(verbs.SendWR{WRID: 7, Opcode: verbs.OpSend}, verbs.SendWR{WRID: 8, Opcode: verbs.OpSend})
	check(err)
	m, err := qp.Sends(func(b *verbs.SendBuilder) error {
		b.RDMAWrite(9, 0, verbs.Remote{Addr: 2, RKey: 1}, verbs.SGE{})
		return nil
	})
	check(err)
	wc := make([]verbs.WC, 4)
	done, err := cq.Poll(wc)
	check(err)
	fmt.Println(n+m, "posted,", done, "done:", wc[0].WRID, wc[1].WRID, wc[2].WRID, "of QP", wc[0].QPNum)
	check(c.Close())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// at returns what is at an address that verbs gave the kernel.
func at[T any](addr uint64) *T {
	p := uintptr(addr)
	return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
}

func memory(addr uint64, b []byte) error {
	copy(b, unsafe.Slice(at[byte](addr), len(b)))
	return nil
}

// answer is the kernel: it has the driver erdma.
func answer(cmd uint64) syscall.Errno {
	call, err := ioctl.Decode(cmd, memory)
	check(err)
	if call.Header.DriverId != uint32(uapi.RDMA_DRIVER_ERDMA) {
		return syscall.EINVAL
	}
	if call.Method == nil {
		return syscall.EPROTONOSUPPORT // there is a driver, but no such method
	}
	for i, a := range call.Attrs {
		switch {
		case a.Spec.Access == uapi.AccessNew && a.Spec.Kind == uapi.AttrFD:
			var events [2]int
			check(syscall.Pipe2(events[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK))
			*at[uint64](cmd + 24 + 16*uint64(i) + 8) = uint64(events[0])
		case a.Spec.Access == uapi.AccessNew:
			*at[uint64](cmd + 24 + 16*uint64(i) + 8) = 5
		case call.Verb() == "get_context" && a.Spec.Name == "UHW_OUT":
			*at[uint32](a.Raw.Data) = 42
		case call.Verb() == "create_qp" && a.Spec.Name == "RESP_QP_NUM":
			*at[uint32](a.Raw.Data) = 17
		case call.Verb() == "query_device_ex" && a.Spec.Name == "CORE_OUT":
			r := at[uapi.IbUverbsExQueryDeviceResp](a.Raw.Data)
			r.Base.MaxCqe, r.Base.MaxQpWr, r.Base.MaxSge = 16, 16, 1
		case call.Verb() == "query_qp" && a.Spec.Name == "CORE_OUT":
			at[uapi.IbUverbsQueryQpResp](a.Raw.Data).QpState = uint8(uapi.IB_QPS_RTS)
		}
	}
	return 0
}

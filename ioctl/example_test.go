package ioctl_test

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A completion queue is made with one call. Here the call meets a file that is
// no RDMA device.
func Example() {
	f, err := ioctl.Open(os.DevNull)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()

	c := ioctl.New(uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE)
	defer c.Release()
	handle := c.NewHandle(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE)
	c.U32(uapi.UVERBS_ATTR_CREATE_CQ_CQE, 64)
	c.U64(uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 1)
	c.U32(uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0)
	cqe := ioctl.Out[uint32](c, uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE)
	if err := c.Run(f); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("CQ", *handle, "has room for", *cqe)
	// Output: inappropriate ioctl for device
}

package ioctl_test

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/ioctl"
)

// One call makes a completion queue. Here the file is not an RDMA device.
func Example() {
	f, err := ioctl.Open(os.DevNull)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()

	c := ioctl.NewCqCreate()
	defer c.Release()
	handle := c.Handle()
	c.Cqe(64)
	c.UserHandle(1)
	c.CompVector(0)
	cqe := c.RespCqe()
	if err := c.Run(f); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("CQ", *handle, "has room for", *cqe)
	// Output: inappropriate ioctl for device
}

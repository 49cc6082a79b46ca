package efa_test

import (
	"fmt"

	"github.com/goverbs/goverbs/provider/efa"
)

// A program links the provider by importing its package. Package verbs then finds it by the
// number of the kernel's driver.
func Example() {
	p := efa.Provider
	fmt.Println(p.Name, p.Driver, p.MinABI, p.MaxABI)
	// Output: efa RDMA_DRIVER_EFA 1 1
}

package rxe_test

import (
	"fmt"

	"github.com/goverbs/goverbs/provider/rxe"
)

// Package verbs finds the provider by the number of the kernel's driver.
func Example() {
	p := rxe.Provider
	fmt.Println(p.Name, p.Driver, p.MinABI, p.MaxABI)
	// Output: rxe RDMA_DRIVER_RXE 1 2
}

package siw_test

import (
	"fmt"

	"github.com/goverbs/goverbs/provider/siw"
)

// A program that imports the package can open siw's devices: package verbs finds the provider by
// the number of the kernel's driver.
func Example() {
	p := siw.Provider
	fmt.Println(p.Name, p.Driver, p.MinABI, p.MaxABI)
	// Output: siw RDMA_DRIVER_SIW 1 1
}

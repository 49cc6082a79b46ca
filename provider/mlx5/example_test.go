package mlx5_test

import (
	"fmt"

	"github.com/goverbs/goverbs/provider/mlx5"
)

// Package verbs finds the provider by the number of the kernel's driver.
func Example() {
	p := mlx5.Provider
	fmt.Println(p.Name, p.Driver, p.MinABI, p.MaxABI)
	// Output: mlx5 RDMA_DRIVER_MLX5 1 1
}

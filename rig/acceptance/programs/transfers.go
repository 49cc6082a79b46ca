//go:build linux

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/goverbs/goverbs/rig/internal/control"
)

// A transferCase transfers data over a faulty fabric.
type transferCase struct {
	name   string
	faults control.Request
	mib    int
	ops    []string
}

func transfers(long bool) []transferCase {
	mib := 16
	if long {
		mib = 1024
	}
	all := []string{"send", "write", "read"}
	return []transferCase{
		{"transfer undisturbed", control.Request{}, mib, all},
		{"transfer with 1 % of the packets lost", control.Request{Drop: 0.01}, mib, all},
		{"transfer with 1 % of the packets reordered", control.Request{Reorder: 0.01}, mib, all},
		{"transfer with 1 % of the packets twice", control.Request{Duplicate: 0.01}, mib, all},
		{"transfer with all of that and a delay", control.Request{Drop: 0.01, Reorder: 0.01, Duplicate: 0.01, Delay: 20_000}, mib, all},
	}
}

func (c transferCase) run(peers string) error {
	c.faults.Do = "faults"
	if err := c.faults.Ask(); err != nil {
		return err
	}
	defer control.Request{Do: "faults"}.Ask()
	for _, op := range c.ops {
		if err := run(exec.Command(filepath.Join(peers, "transfer"), "mlx5_0", "mlx5_1", op, fmt.Sprint(c.mib))); err != nil {
			return err
		}
	}
	return nil
}

//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// faults is a request to the HCAs' control device, for what goes wrong on the
// fabric.
type faults struct {
	Do                       string
	Drop, Duplicate, Reorder float64
	Delay, Jitter            int64 // nanoseconds
}

// transferCase moves data while something goes wrong.
type transferCase struct {
	name   string
	faults faults
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
		{"transfer undisturbed", faults{}, mib, all},
		{"transfer with 1 % of the packets lost", faults{Drop: 0.01}, mib, all},
		{"transfer with 1 % of the packets reordered", faults{Reorder: 0.01}, mib, all},
		{"transfer with 1 % of the packets twice", faults{Duplicate: 0.01}, mib, all},
		{"transfer with all of that and a delay", faults{Drop: 0.01, Reorder: 0.01, Duplicate: 0.01, Delay: 20_000}, mib, all},
	}
}

func (c transferCase) run(program string) error {
	if err := control(c.faults); err != nil {
		return err
	}
	defer control(faults{})
	for _, op := range c.ops {
		if err := run(exec.Command(program, "mlx5_0", "mlx5_1", op, fmt.Sprint(c.mib))); err != nil {
			return err
		}
	}
	return nil
}

// control makes a request to the HCAs and waits for the answer.
func control(f faults) error {
	f.Do = "faults"
	device, err := os.OpenFile(os.Getenv("VM_HCA"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := json.NewEncoder(device).Encode(f); err != nil {
		return err
	}
	line, err := bufio.NewReader(device).ReadBytes('\n')
	if err != nil {
		return err
	}
	var answer struct{ Error string }
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("faults: %s", answer.Error)
	}
	return nil
}

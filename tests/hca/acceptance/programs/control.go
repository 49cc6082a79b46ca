//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// request is what the HCAs' control device takes.
type request struct {
	Do                       string
	HCA                      int
	Up                       bool    // port
	Drop, Duplicate, Reorder float64 // faults: fractions of 1
	Delay, Jitter            int64   // faults: nanoseconds
	QPN                      uint32  // inject, as the following
	Kind                     string
	N                        int
	Syndrome, Vendor         uint8
}

// controlling is held by the one who has the control device open, since there
// can be only one.
var controlling sync.Mutex

// do makes a request to the HCAs and waits for the answer, which it puts into
// result unless that is nil.
func (r request) do(result any) error {
	controlling.Lock()
	defer controlling.Unlock()
	device, err := os.OpenFile(os.Getenv("VM_HCA"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := json.NewEncoder(device).Encode(r); err != nil {
		return err
	}
	line, err := bufio.NewReader(device).ReadBytes('\n')
	if err != nil {
		return err
	}
	answer := struct {
		Error  string
		Result any
	}{Result: result}
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", r.Do, answer.Error)
	}
	return nil
}

// ask is do where the answer is only that it went well.
func (r request) ask() error { return r.do(nil) }

// resources counts an HCA's objects by kind.
func resources(hca int) (n map[string]int, err error) {
	err = request{Do: "resources", HCA: hca}.do(&n)
	return n, err
}

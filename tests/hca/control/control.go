// Package control makes requests to the HCAs of the rig, as tests/hca/README.md has them.
package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// A Request is a line that the control socket takes.
type Request struct {
	Do  string // what to do
	HCA int    // to which HCA
	Up  bool   // port
	// faults: fractions of 1, and nanoseconds
	Drop, Duplicate, Reorder float64
	Delay, Jitter            int64
	// inject: what happens to the N-th from now on, with which syndrome of the CQE
	QPN              uint32
	Kind             string
	N                int
	Syndrome, Vendor uint8
	// of a hostile HCA
	Opcode uint16
	Status uint8
	Seed   uint64
	Type   uint8
	CQE    []byte // base64
}

// asking is held by the one who has the device open, since there can be only one.
var asking sync.Mutex

// Get makes the request and waits for its result, which it puts into result unless that
// is nil. An error is the HCA's refusal, or that it can't be asked.
func (r Request) Get(result any) error {
	asking.Lock()
	defer asking.Unlock()
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

// Ask is Get where the result is only that it went well.
func (r Request) Ask() error { return r.Get(nil) }

// Resources counts an HCA's objects by kind.
func Resources(hca int) (n map[string]int, err error) {
	err = Request{Do: "resources", HCA: hca}.Get(&n)
	return n, err
}

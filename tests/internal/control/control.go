// Package control sends requests to the rig's adapters in software, from a guest. rig/connectx/README.md
// describes the requests to HCAs, and rig/efa/README.md those to EFAs. An adapter refuses a
// request with an unknown field.
package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// A Request is a line for the control socket.
type Request struct {
	Do  string // the request's name
	HCA int    // the number of the HCA
	Up  bool   // port, trunk, pause
	// switches: the HCAs at each
	Switches [][]int
	// faults: fractions of 1, and nanoseconds
	Drop, Duplicate, Reorder float64
	Delay, Jitter            int64
	// inject: the kind of fault, for the N-th from now on, and the CQE's syndrome
	QPN              uint32
	Kind             string
	N                int
	Syndrome, Vendor uint8
	// for a hostile HCA
	Opcode uint16
	Status uint8
	Seed   uint64
	Type   uint8
	CQE    []byte // base64
}

// asking is held while the device is open, because it can be opened only once.
var asking sync.Mutex

// Get sends the request, waits for the reply, and stores its result in result, if that
// isn't nil. It returns an error if the HCA refuses the request or can't be reached.
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

// Ask is like Get, for requests without a result.
func (r Request) Ask() error { return r.Get(nil) }

// Resources returns the numbers of an HCA's objects by kind.
func Resources(hca int) (n map[string]int, err error) {
	err = Request{Do: "resources", HCA: hca}.Get(&n)
	return n, err
}

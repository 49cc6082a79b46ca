// Package faults has an mlx5 device of the rig fail: single work requests, by
// every syndrome, and the whole device, while queue pairs run on it.
package faults

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnMLX5) }

// A request is what the rig's HCAs are asked, as tests/hca/README.md has it.
type request struct {
	Do               string
	HCA              int
	QPN              uint32 `json:",omitempty"`
	Kind             string `json:",omitempty"`
	N                int    `json:",omitempty"`
	Syndrome, Vendor uint8  `json:",omitempty"`
	Opcode           uint16 `json:",omitempty"`
	Status, Type     uint8  `json:",omitempty"`
	Seed             uint64 `json:",omitempty"`
	CQE              []byte `json:",omitempty"`
}

// An hca is the way to ask them. It is open only once at a time.
type hca struct {
	file    *os.File
	answers *bufio.Reader
}

func openHCA(t *testing.T) *hca {
	t.Helper()
	file, err := os.OpenFile(os.Getenv("VM_HCA"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &hca{file, bufio.NewReader(file)}
}

func (h *hca) ask(t *testing.T, r request) {
	t.Helper()
	if err := h.try(t, r, nil); err != "" {
		t.Fatalf("%+v: %s", r, err)
	}
}

// try asks for what may be refused, and returns why it is.
func (h *hca) try(t *testing.T, r request, result any) (refusal string) {
	t.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.file.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if line, err = h.answers.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	answer := struct {
		Error  string
		Result any
	}{Result: result}
	if err := json.Unmarshal(line, &answer); err != nil {
		t.Fatalf("%+v: %v, %s", r, err, line)
	}
	return answer.Error
}

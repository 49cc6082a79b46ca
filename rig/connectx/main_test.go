//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/firmware"
	"github.com/goverbs/goverbs/rig/internal/control"
	"github.com/goverbs/goverbs/rig/internal/vfiouser"
)

func plugIn(t *testing.T) *machine {
	t.Helper()
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	return plug(fabric.New(fabric.Config{Clock: now}), firstGUID, firmware.Config{Now: now}, func() {})
}

// ask makes a machine execute a request, and returns the reply.
func ask(t *testing.T, m *machine, request string) (result map[string]int, failure string) {
	t.Helper()
	var a struct {
		Error  string
		Result map[string]int
	}
	if err := json.Unmarshal(control.Answer([]byte(request), func(r control.Request) (any, error) { return carryOut(r, []*machine{m}) }), &a); err != nil {
		t.Fatal(err)
	}
	return a.Result, a.Error
}

func TestRequests(t *testing.T) {
	m := plugIn(t)
	if r, failure := ask(t, m, `{"Do":"resources"}`); failure != "" || r["qp"] != 0 || len(r) < 10 {
		t.Errorf("%v %q", r, failure)
	}
	if _, failure := ask(t, m, `{"Do":"port","Up":false}`); failure != "" || m.port.Up() {
		t.Errorf("the port stays up: %q", failure)
	}
	for _, bad := range []string{
		`{"Do":"dance"}`, `{"Do":"port","HCA":1}`, `{"Do":"port","HCA":-1}`, `{"Do":"port","Speed":1}`, `}`, ``,
		`{"Do":"inject","QPN":99,"Kind":"send","N":1}`, `{"Do":"inject","Kind":"dance"}`,
	} {
		if _, failure := ask(t, m, bad); failure == "" {
			t.Errorf("%s succeeded", bad)
		}
	}
}

// The driver finds the PCI function, until it vanishes.
func TestPlugged(t *testing.T) {
	m := plugIn(t)
	var id [4]byte
	m.Read(vfiouser.RegionConfig, 0, id[:])
	if id != [4]byte{0xb3, 0x15, 0x1b, 0x10} {
		t.Errorf("its PCI ID is % x", id)
	}
	if m.Size(vfiouser.RegionBAR0) != barSize {
		t.Error("its BAR has the wrong size")
	}
	ask(t, m, `{"Do":"vanish"}`)
	m.Read(vfiouser.RegionConfig, 0, id[:])
	var revision [4]byte
	m.Read(vfiouser.RegionBAR0, 0, revision[:])
	if ones := [4]byte{255, 255, 255, 255}; id != ones || revision != ones {
		t.Errorf("it responds after it has vanished: % x, % x", id, revision)
	}
	ask(t, m, `{"Do":"return"}`)
	m.Read(vfiouser.RegionBAR0, 0, revision[:])
	if revision == [4]byte{255, 255, 255, 255} {
		t.Error("it hasn't returned")
	}
}

func TestControlSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	machines := []*machine{plugIn(t)}
	go control.Serve(l, func(r control.Request) (any, error) { return carryOut(r, machines) })
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewScanner(c)
	for range 3 {
		if _, err := c.Write([]byte(`{"Do":"resources"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() || !json.Valid(answers.Bytes()) {
			t.Fatalf("answer %q, %v", answers.Bytes(), answers.Err())
		}
	}
}

func TestTraceFile(t *testing.T) {
	var text bytes.Buffer
	f := newLogFile(&text, func() time.Duration { return 7 })
	a, b := hcaLog{f, 0}, hcaLog{f, 1}
	a.Command(0x500, "create_qp", 3, []byte{5, 0}, []byte{3})
	b.Doorbell(16, 0x800, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	a.Send(80, 0, []byte{0xab})
	b.Receive(81, 0, 2, []byte{0xcd})
	if err := f.flush(); err != nil {
		t.Fatal(err)
	}
	want := `{"Order":1,"Time":7,"HCA":0,"Event":"command","Name":"create_qp","Opcode":1280,"Status":3,"In":"0500","Out":"03"}
{"Order":2,"Time":7,"HCA":1,"Event":"doorbell","Address":67584,"Size":8,"Bytes":"0102030405060708"}
{"Order":3,"Time":7,"HCA":0,"Event":"send","QPN":80,"Index":0,"Bytes":"ab"}
{"Order":4,"Time":7,"HCA":1,"Event":"receive","QPN":81,"Index":2,"Bytes":"cd"}
`
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

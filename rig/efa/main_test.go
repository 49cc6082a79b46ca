//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/device"
	"github.com/goverbs/goverbs/rig/efa/internal/wire"
	"github.com/goverbs/goverbs/rig/internal/control"
	"github.com/goverbs/goverbs/rig/internal/vfiouser"
)

func open(t *testing.T, adapters int) *room {
	t.Helper()
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	r := newRoom(wire.New(1, now))
	for i := range adapters {
		c := device.Config{Profile: device.Profiles[0], Now: now, Violation: func(err error) { t.Error(err) }}
		if _, err := r.plug(i, c); err != nil {
			t.Fatal(err)
		}
	}
	go r.run(now)
	return r
}

// The driver finds the PCI function, until it vanishes.
func TestPlugged(t *testing.T) {
	r := open(t, 2)
	m := r.machines[1]
	read := func(region uint32, offset uint64) uint32 {
		var b [4]byte
		m.Read(region, offset, b[:])
		return binary.LittleEndian.Uint32(b[:])
	}
	const version, status = 0, 0x58
	if id := read(vfiouser.RegionConfig, 0); id != 0xefa2_1d0f {
		t.Errorf("its PCI ID is %#x", id)
	}
	if v, s := read(vfiouser.RegionBAR0, version), read(vfiouser.RegionBAR0, status); v != 1 || s != 1 {
		t.Errorf("version %#x, status %#x", v, s)
	}
	for region, size := range map[uint32]uint64{
		vfiouser.RegionBAR0: device.RegistersSize, vfiouser.RegionBAR2: device.LLQSize, vfiouser.RegionBAR4: device.DoorbellsSize,
		vfiouser.RegionConfig: 4096, 1: 0,
	} {
		if n := m.Size(region); n != size {
			t.Errorf("region %d has %#x bytes, not %#x", region, n, size)
		}
		if mapped := m.File(region) != nil; mapped != (region == vfiouser.RegionBAR2) {
			t.Errorf("region %d can be mapped: %v", region, mapped)
		}
	}
	control.Answer([]byte(`{"Do":"vanish","HCA":1}`), r.carryOut)
	if id, s := read(vfiouser.RegionConfig, 0), read(vfiouser.RegionBAR0, status); id != 1<<32-1 || s != 1<<32-1 {
		t.Errorf("it answers after it has vanished: %#x, %#x", id, s)
	}
	control.Answer([]byte(`{"Do":"return","HCA":1}`), r.carryOut)
	if s := read(vfiouser.RegionBAR0, status); s != 1 {
		t.Errorf("it hasn't returned: %#x", s)
	}
}

func TestRequests(t *testing.T) {
	r := open(t, 2)
	for request, want := range map[string]string{
		`{"Do":"resources","HCA":1}`: `{"Result":{"ah":0,"cq":0,"eq":0,"mr":0,"pd":0,"qp":0,"uar":0}}`,
		`{"Do":"packets"}`:           `{"Result":{"Sent":0,"Delivered":0,"Lost":0,"Duplicated":0,"Overtaken":0,"NotReady":0}}`,
		`{"Do":"host"}`:              `{"Result":""}`,
		`{"Do":"fatal"}`:             `{"Error":"the driver wants no such events"}`,
		`{"Do":"dance"}`:             `{"Error":"unknown request \"dance\""}`,
		`{"Do":"host","HCA":2}`:      `{"Error":"no such adapter"}`,
		`{"Do":"host","HCA":-1}`:     `{"Error":"no such adapter"}`,
	} {
		if got := string(control.Answer([]byte(request), r.carryOut)); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
	for _, bad := range []string{`}`, ``, `{"Do":"host","Speed":1}`} {
		var a struct{ Error string }
		if err := json.Unmarshal(control.Answer([]byte(bad), r.carryOut), &a); err != nil || a.Error == "" {
			t.Errorf("%q succeeded", bad)
		}
	}
	control.Answer([]byte(`{"Do":"faults","Drop":0.25,"Reorder":0.5,"Duplicate":0.125,"Delay":7,"Jitter":9}`), r.carryOut)
	var got wire.Faults
	r.call(func() { got = r.wire.Faults })
	if want := (wire.Faults{Loss: 0.25, Reorder: 0.5, Duplicate: 0.125, Delay: 7, Jitter: 9}); got != want {
		t.Errorf("faults %+v, want %+v", got, want)
	}
}

func TestControlSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go control.Serve(l, open(t, 1).carryOut)
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

func TestChosen(t *testing.T) {
	for names, want := range map[string]string{"": "efa2 efa2 efa2", "efa1": "efa1 efa1 efa1", "efa0,efa1": "efa0 efa1 efa1"} {
		list, err := chosen(names, 3)
		got := ""
		for _, p := range list {
			got += " " + p.Name
		}
		if err != nil || got != " "+want {
			t.Errorf("%q: %s, %v", names, got, err)
		}
	}
	if _, err := chosen("efa9", 1); err == nil {
		t.Error("there is a profile efa9")
	}
}

//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/rig/connectx/internal/fabric"
	"github.com/goverbs/goverbs/rig/connectx/internal/firmware"
	"github.com/goverbs/goverbs/rig/connectx/internal/transport"
	"github.com/goverbs/goverbs/rig/internal/control"
)

var faultKinds = map[string]transport.FaultKind{
	"send": transport.FailSend, "receive": transport.FailReceive,
	"drop": transport.DropPacket, "damage": transport.DamagePacket,
}

// requests has the functions that execute requests, on the HCA's goroutine. They return
// the result for the reply.
var requests = map[string]func(m *machine, r control.Request) (any, error){
	"port": func(m *machine, r control.Request) (any, error) {
		m.port.SetUp(r.Up)
		return nil, nil
	},
	"pause": func(m *machine, r control.Request) (any, error) {
		return nil, m.hca.Pause(r.Up)
	},
	"switches": func(m *machine, r control.Request) (any, error) {
		return nil, m.fabric.SetSwitches(switchGUID, r.Switches)
	},
	"trunk": func(m *machine, r control.Request) (any, error) {
		return nil, m.fabric.SetTrunk(r.N, r.Up)
	},
	// A subnet manager must bring the port up, from now on.
	"manage": func(m *machine, r control.Request) (any, error) {
		m.hca.Manage(true)
		return nil, nil
	},
	// The fabric brings the port up, as at first.
	"unmanage": func(m *machine, r control.Request) (any, error) {
		m.hca.Manage(false)
		return nil, nil
	},
	"fatal": func(m *machine, r control.Request) (any, error) {
		m.hca.Fail()
		return nil, nil
	},
	// The device is pulled off the bus without warning.
	"vanish": func(m *machine, r control.Request) (any, error) {
		m.config.Remove(true)
		m.hca.Remove(true)
		return nil, nil
	},
	// A new device replaces a vanished one.
	"return": func(m *machine, r control.Request) (any, error) {
		m.hca.Remove(false)
		m.config.Remove(false)
		return nil, nil
	},
	"faults": func(m *machine, r control.Request) (any, error) {
		faults := fabric.Faults{
			Drop: r.Drop, Duplicate: r.Duplicate, Reorder: r.Reorder,
			Delay: time.Duration(r.Delay), Jitter: time.Duration(r.Jitter),
		}
		m.fabric.SetFaults(faults)
		return nil, nil
	},
	"inject": func(m *machine, r control.Request) (any, error) {
		kind, ok := faultKinds[r.Kind]
		if !ok {
			return nil, fmt.Errorf("no such kind of fault: %q", r.Kind)
		}
		return nil, m.hca.Inject(r.QPN, transport.Fault{Kind: kind, N: r.N, Syndrome: r.Syndrome, Vendor: r.Vendor})
	},
	"completions": func(m *machine, r control.Request) (any, error) { return m.hca.Completions(), nil },
	"lie": func(m *machine, r control.Request) (any, error) {
		return nil, m.hca.Lie(firmware.Lie{Opcode: r.Opcode, N: r.N, Status: firmware.Status(r.Status), Syndrome: uint32(r.Syndrome), Seed: r.Seed})
	},
	"repent": func(m *machine, r control.Request) (any, error) {
		m.hca.Repent()
		return nil, nil
	},
	"forge": func(m *machine, r control.Request) (any, error) {
		if r.Kind != "send" && r.Kind != "receive" {
			return nil, fmt.Errorf("a CQ is for send or receive, not %q", r.Kind)
		}
		return nil, m.hca.Forge(r.QPN, r.Kind == "receive", r.CQE)
	},
	"mutate": func(m *machine, r control.Request) (any, error) { return nil, m.hca.Mutate(r.Kind, r.N) },
	"tell":   func(m *machine, r control.Request) (any, error) { return nil, m.hca.Tell(r.Type, r.QPN) },
	"scribble": func(m *machine, r control.Request) (any, error) {
		return nil, m.hca.Scribble(r.QPN, r.Kind, r.N, r.Seed)
	},
	"packets":   func(m *machine, r control.Request) (any, error) { return m.fabric.Stats(), nil },
	"doorbells": func(m *machine, r control.Request) (any, error) { return m.hca.Doorbells(), nil },
	"resources": func(m *machine, r control.Request) (any, error) {
		return m.hca.Resources(), nil
	},
}

// carryOut carries out a request on the HCA's goroutine.
func carryOut(r control.Request, machines []*machine) (result any, err error) {
	do := requests[r.Do]
	if do == nil {
		return nil, fmt.Errorf("unknown request %q", r.Do)
	}
	if r.HCA < 0 || r.HCA >= len(machines) {
		return nil, errors.New("no such HCA")
	}
	m := machines[r.HCA]
	m.call(func() { result, err = do(m, r) })
	return result, err
}

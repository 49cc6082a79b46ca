//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/rig/efa/internal/device"
	"github.com/goverbs/goverbs/rig/efa/internal/wire"
	"github.com/goverbs/goverbs/rig/internal/control"
)

// requests has the functions that execute requests, on the room's goroutine. They return the
// result for the reply.
var requests = map[string]func(m *machine, r control.Request) (any, error){
	"resources": func(m *machine, _ control.Request) (any, error) { return m.device.Resources(), nil },
	"host":      func(m *machine, _ control.Request) (any, error) { return m.device.Host(), nil },
	"packets":   func(m *machine, _ control.Request) (any, error) { return m.room.wire.Stats, nil },
	"faults": func(m *machine, r control.Request) (any, error) {
		m.room.wire.Faults = wire.Faults{
			Loss: r.Drop, Duplicate: r.Duplicate, Reorder: r.Reorder, Delay: time.Duration(r.Delay), Jitter: time.Duration(r.Jitter),
		}
		return nil, nil
	},
	"fatal": func(m *machine, _ control.Request) (any, error) {
		if !m.device.Fail() {
			return nil, errors.New("the driver wants no such events")
		}
		return nil, nil
	},
	"lie": func(m *machine, r control.Request) (any, error) {
		if r.Opcode > 0xff {
			return nil, errors.New("opcodes have 8 bits")
		}
		return nil, m.device.Lie(device.Lie{Opcode: uint8(r.Opcode), N: r.N, Status: r.Status, ExtendedStatus: uint16(r.Syndrome)})
	},
	"inject": func(m *machine, r control.Request) (any, error) {
		return nil, m.device.Inject(r.QPN, device.Fault{Kind: device.FaultKind(r.Kind), N: r.N, Status: wire.Status(r.Syndrome)})
	},
	"forge": func(m *machine, r control.Request) (any, error) {
		if r.Kind != "send" && r.Kind != "receive" {
			return nil, fmt.Errorf("a CQ is for send or receive, not %q", r.Kind)
		}
		return nil, m.device.Forge(r.QPN, r.Kind == "receive", r.CQE)
	},
	// The device is pulled off the bus without warning.
	"vanish": func(m *machine, _ control.Request) (any, error) {
		m.config.Remove(true)
		m.device.Remove(true)
		return nil, nil
	},
	// A new device replaces a vanished one.
	"return": func(m *machine, _ control.Request) (any, error) {
		m.device.Remove(false)
		m.config.Remove(false)
		return nil, nil
	},
}

// carryOut carries out a request on the room's goroutine. The result may be the adapters' own,
// so it is encoded there, too.
func (r *room) carryOut(q control.Request) (result any, err error) {
	do := requests[q.Do]
	if do == nil {
		return nil, fmt.Errorf("unknown request %q", q.Do)
	}
	if q.HCA < 0 || q.HCA >= len(r.machines) {
		return nil, errors.New("no such adapter")
	}
	r.call(func() {
		if result, err = do(r.machines[q.HCA], q); result == nil || err != nil {
			return
		}
		var text json.RawMessage
		text, err = json.Marshal(result)
		result = text
	})
	return result, err
}

// Package mlx5dv tests package mlx5dv on adapters, and that it refuses other devices.
package mlx5dv

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m, rdmatest.OnMLX5, rdmatest.OnMLX5Eth) }

// open opens a device for DEVX. At the end of the test it closes it with all objects, and fails
// the test if anything leaks.
func open(t *testing.T, name string) *verbs.Device {
	t.Helper()
	rdmatest.CheckLeaks(t)
	c := rdmatest.Must(mlx5dv.Open(info(t, name), mlx5dv.Options{DEVX: true}))(t)
	t.Cleanup(func() { rdmatest.Close(t, c) })
	return c
}

func info(t *testing.T, name string) *verbs.DeviceInfo {
	t.Helper()
	for _, d := range rdmatest.Must(verbs.Devices())(t) {
		if d.Name() == name {
			return d
		}
	}
	t.Fatalf("no device %s", name)
	return nil
}

// command returns a command's header, with room for n bytes in all.
func command(opcode, mod uint16, n int) []byte {
	in := make([]byte, n)
	binary.BigEndian.PutUint16(in, opcode)
	binary.BigEndian.PutUint16(in[6:], mod)
	return in
}

// be32 returns a word of a command or an answer.
func be32(b []byte, at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }

// capability returns bits of the adapter's general capabilities, by their offset in
// mlx5_ifc_cmd_hca_cap_bits.
func capability(t *testing.T, c *verbs.Device, at, width uint) uint32 {
	t.Helper()
	const queryCap, current = 0x100, 1
	out := make([]byte, 16+4096)
	rdmatest.Check(t, mlx5dv.Command(c, command(queryCap, current, 16), out))
	return be32(out[16:], int(at/32*4)) >> (32 - at%32 - width) & (1<<width - 1)
}

var _ = rdmatest.Test(TestOtherDriver, rdmatest.OnRXE)

// TestOtherDriver: every function fails on a device with another driver.
func TestOtherDriver(t *testing.T) {
	c := rdmatest.Open(t)
	pd := rdmatest.Must(c.AllocPD())(t)
	if mlx5dv.Supported(c) {
		t.Error("supported")
	}
	for name, call := range map[string]func() error{
		"open":    func() error { _, err := mlx5dv.Open(c.Info(), mlx5dv.Options{DEVX: true}); return err },
		"command": func() error { return mlx5dv.Command(c, make([]byte, 16), make([]byte, 16)) },
		"object":  func() error { _, err := mlx5dv.CreateObject(c, make([]byte, 16), make([]byte, 16)); return err },
		"PD":      func() error { _, err := mlx5dv.PDNumber(pd); return err },
		"UAR":     func() error { _, err := mlx5dv.AllocRegisters(c, mlx5dv.RegistersNC); return err },
		"pacing": func() error {
			_, err := mlx5dv.AllocPacing(c, mlx5dv.PacingOptions{Limit: verbs.RateLimit{Rate: 1}})
			return err
		},
		"events": func() error { _, err := mlx5dv.NewEventChannel(c, false); return err },
		"matcher": func() error {
			_, err := mlx5dv.CreateMatcher(c, mlx5dv.MatcherOptions{Mask: make([]byte, 4)})
			return err
		},
		"MR": func() error { _, err := mlx5dv.RegDmabufMR(pd, verbs.DmabufOptions{Length: 4096}); return err },
		"WQE": func() error {
			return mlx5dv.PostWQE(rdmatest.PairOn(t, c, rdmatest.Default()).A.QP, 1, make([]byte, 16))
		},
		"EQ":       func() error { _, err := mlx5dv.EQNumber(c, 0); return err },
		"data way": func() error { _, err := mlx5dv.DataDirectPath(c); return err },
	} {
		var e *verbs.OpError
		if err := call(); !errors.Is(err, verbs.ErrNotSupported) || !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNotDEVX: a device that verbs has opened takes no commands, but its queues' addresses
// are available.
func TestNotDEVX(t *testing.T) {
	c := rdmatest.Open(t)
	if !mlx5dv.Supported(c) {
		t.Error("not supported")
	}
	if err := mlx5dv.Command(c, make([]byte, 16), make([]byte, 16)); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("command: %v", err)
	}
	pd := rdmatest.Must(c.AllocPD())(t)
	rdmatest.Must(mlx5dv.PDNumber(pd))(t)
	rdmatest.Close(t, pd)
	if _, err := mlx5dv.PDNumber(pd); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a closed PD: %v", err)
	}
	for _, r := range []mlx5dv.RegisterKind{mlx5dv.RegistersBF, mlx5dv.RegistersNC} {
		u, err := mlx5dv.AllocRegisters(c, r)
		if err != nil {
			t.Errorf("kind %d: %v", r, err)
			continue
		}
		if len(u.Bytes()) < 4096 {
			t.Errorf("kind %d: %d bytes", r, len(u.Bytes()))
		}
		f, err := u.ExportDmabuf()
		if rdmatest.Kernel(t).AtLeast(7, 0) {
			rdmatest.Check(t, err)
			rdmatest.Close(t, f)
		} else if !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("kind %d, a kernel without exports returns %v", r, err)
		}
		rdmatest.Close(t, u)
		if _, err := u.ExportDmabuf(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("kind %d, closed: %v", r, err)
		}
	}
	if _, err := mlx5dv.EQNumber(c, c.NumCompVectors()); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a vector too many: %v", err)
	}
}

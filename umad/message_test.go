package umad

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/uapi"
)

func TestHeaderSize(t *testing.T) {
	if n := binary.Size(uapi.IbUserMadHdr{}); n != userHeader {
		t.Errorf("the header has %d bytes, the data begin at %d", n, userHeader)
	}
}

func someMessage() Message {
	return Message{
		Addr: Addr{LID: 0x1234, QPN: 1, QKey: GeneralQKey, SL: 3, PathBits: 1, PKeyIndex: 2, GRH: &GRH{
			GID: [16]byte{0xfe, 0x80, 15: 7}, GIDIndex: 4, HopLimit: 5, TrafficClass: 6, FlowLabel: 0x54321,
		}},
		MAD: bytes.Repeat([]byte{0xab}, Size),
	}
}

// Decoding reverses encoding, and multi-byte addresses are in network byte order.
func TestMessage(t *testing.T) {
	want := someMessage()
	want.Timeout, want.Retries = 1500*time.Microsecond, 3
	b, err := want.encode(9)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != 64+Size || !bytes.Equal(b[20:30], []byte{0, 0, 0, 1, 0x80, 1, 0, 0, 0x12, 0x34}) {
		t.Errorf("%d bytes, the address % x", len(b), b[20:30])
	}
	if ms := binary.NativeEndian.Uint32(b[8:]); ms != 2 {
		t.Errorf("the timeout is %d ms", ms)
	}
	got, agent, err := decode(b)
	want.Timeout, want.Retries = 0, 0 // only the kernel gets these
	if err != nil || agent != 9 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v of agent %d, %v; want %+v", got, agent, err, want)
	}
	binary.NativeEndian.PutUint32(b[4:], uint32(syscall.ETIMEDOUT))
	if got, _, err := decode(b[:64+HeaderSize]); err != nil || got.Err != error(syscall.ETIMEDOUT) {
		t.Errorf("a request without answer: %+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	for name, spoil := range map[string]func(m *Message){
		"short":        func(m *Message) { m.MAD = m.MAD[:Size-1] },
		"long":         func(m *Message) { m.MAD = make([]byte, maxMAD+1) },
		"timeout":      func(m *Message) { m.Timeout = -1 },
		"long timeout": func(m *Message) { m.Timeout = math.MaxInt64 },
		"retries":      func(m *Message) { m.Retries = 256 },
		"QPN":          func(m *Message) { m.Addr.QPN = 1 << 24 },
		"SL":           func(m *Message) { m.Addr.SL = 16 },
		"flow label":   func(m *Message) { m.Addr.GRH.FlowLabel = 1 << 20 },
	} {
		m := someMessage()
		spoil(&m)
		if _, err := m.encode(0); !errors.Is(err, operr.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Truncated messages and impossible lengths are errors.
func TestMalformed(t *testing.T) {
	m := someMessage()
	b, err := m.encode(0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 64 + HeaderSize {
		if _, _, err := decode(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	for length, ok := range map[uint32]bool{0: false, uint32(len(b)): false, uint32(len(b)) + 1: true, maxMAD + 1: true, mostRead + 1: false, math.MaxUint32: false} {
		binary.NativeEndian.PutUint32(b[16:], length)
		if n, err := needs(b); ok != (err == nil) || ok && n != int(length) {
			t.Errorf("length %d: %d, %v", length, n, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	m := someMessage()
	b, err := m.encode(1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:70])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, _, err := decode(b)
		if err != nil {
			return
		}
		if _, err := ParseHeader(m.MAD); err != nil {
			t.Errorf("a MAD of %d bytes: %v", len(m.MAD), err)
		}
	})
}

func TestStatus(t *testing.T) {
	for s, want := range map[Status]string{
		0x0c: "status 0x000c, unsupported attribute", 0x1d: "status 0x001d, invalid value in attribute or modifier, busy",
		0x0200: "status 0x0200", 2: "status 0x0002, redirected",
	} {
		if got := s.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestErrorHints: an error says what to do about it.
func TestErrorHints(t *testing.T) {
	for err, want := range map[error]string{
		syscall.EACCES:    "umad: request by mlx5_0/1: EACCES; the files in /dev/infiniband belong to root",
		syscall.ETIMEDOUT: "umad: request by mlx5_0/1: ETIMEDOUT; nobody has answered: ",
		Status(0x0c):      "umad: request by mlx5_0/1: status 0x000c, unsupported attribute",
	} {
		if got := opErr("request by", "mlx5_0/1", err).Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A directed answer's status has a bit for the direction, which is not an error.
func TestDirectedStatus(t *testing.T) {
	b := make([]byte, Size)
	(&Header{Class: ClassDirected, Status: 0x8000}).Put(b)
	if h, err := ParseHeader(b); err != nil || h.Status != 0 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestNodes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := class(dir)
	if _, err := class(filepath.Join(dir, "none")).path("umad", Name{"mlx5_0", 1}); !errors.Is(err, errNoModule) {
		t.Errorf("without the module: %v", err)
	}
	write("abi_version", "5\n")
	write("umad0/ibdev", "mlx5_0\n")
	write("umad0/port", "1\n")
	write("issm0/ibdev", "mlx5_0\n")
	write("issm0/port", "1\n")
	write("umad1/ibdev", "gone\n")
	for prefix, want := range map[string]string{"umad": "/dev/infiniband/umad0", "issm": "/dev/infiniband/issm0"} {
		if got, err := c.path(prefix, Name{"mlx5_0", 1}); err != nil || got != want {
			t.Errorf("%s: %q, %v", prefix, got, err)
		}
	}
	for _, n := range []Name{{"mlx5_0", 2}, {"gone", 1}} {
		if _, err := c.path("umad", n); !errors.Is(err, ErrNoPort) {
			t.Errorf("%v: %v", n, err)
		}
	}
	write("umad2/ibdev", "mlx5_2\n")
	write("umad2/port", "one\n")
	if _, err := c.path("umad", Name{"mlx5_0", 1}); err == nil || !strings.Contains(err.Error(), "umad2 has port") {
		t.Errorf("a port that is no number: %v", err)
	}
	write("abi_version", "6\n")
	if _, err := c.path("umad", Name{"mlx5_0", 1}); err == nil || !strings.Contains(err.Error(), "version 6") {
		t.Errorf("another version: %v", err)
	}
}

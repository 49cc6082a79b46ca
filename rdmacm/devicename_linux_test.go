package rdmacm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"
)

func netlink(kind uint16, length int, body ...[]byte) []byte {
	b := bytes.Join(body, nil)
	if length == 0 {
		length = 16 + len(b)
	}
	m := binary.NativeEndian.AppendUint32(nil, uint32(length))
	m = binary.NativeEndian.AppendUint16(m, kind)
	return append(append(m, make([]byte, 10)...), b...)
}

func attribute(kind uint16, length int, data string) []byte {
	if length == 0 {
		length = 4 + len(data)
	}
	a := binary.NativeEndian.AppendUint16(nil, uint16(length))
	a = binary.NativeEndian.AppendUint16(a, kind)
	a = append(a, data...)
	return append(a, make([]byte, -len(a)&3)...)
}

func TestDeviceName(t *testing.T) {
	const get = 0x1401
	request := nameRequest(0x01020304)
	if want := netlink(get, 24, attribute(1, 8, string(binary.NativeEndian.AppendUint32(nil, 0x01020304)))); !bytes.Equal(request[:4], want[:4]) ||
		!bytes.Equal(request[4:6], want[4:6]) || request[6]|request[7] != 1 || !bytes.Equal(request[16:], want[16:]) {
		t.Errorf("the request is % x", request)
	}
	index := attribute(1, 8, "\x00\x00\x00\x00")
	name, err := nameAnswer(netlink(get, 0, index, attribute(2, 0, "mlx5_10\x00"), attribute(3, 0, "x")))
	if name != "mlx5_10" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	if name, err = nameAnswer(netlink(get, 0, attribute(2|0x8000, 0, "rxe0\x00"))); name != "rxe0" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	_, err = nameAnswer(netlink(2, 0, binary.NativeEndian.AppendUint32(nil, ^uint32(syscall.EINVAL)+1)))
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an error is %v", err)
	}
	for _, bad := range [][]byte{
		nil, make([]byte, 15), make([]byte, 16), netlink(get, 0), netlink(get, 100), netlink(get, 15), netlink(2, 0),
		netlink(3, 0, attribute(2, 0, "rxe0\x00")), netlink(get, 0, index),
		netlink(get, 0, attribute(7, 3, ""), attribute(2, 0, "x")), netlink(get, 0, attribute(7, 200, ""), attribute(2, 0, "x")),
	} {
		if name, err := nameAnswer(bad); err == nil {
			t.Errorf("% x is %q", bad, name)
		}
	}
}

// Parsing any answer terminates, with a name or an error.
func FuzzDeviceName(f *testing.F) {
	f.Add(netlink(0x1401, 0, attribute(2, 0, "rxe0\x00")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if name, err := nameAnswer(b); err == nil && !bytes.Contains(b, []byte(name)) {
			t.Errorf("the name %q is not in % x", name, b)
		}
	})
}

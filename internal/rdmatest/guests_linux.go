package rdmatest

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"
)

// A Guest is a connection to the same test in the other of two guests.
type Guest struct {
	*json.Encoder
	*json.Decoder
}

// Meet waits for the test in the other guest.
func Meet(t testing.TB) Guest {
	t.Helper()
	const port = ":18514"
	var conn net.Conn
	if os.Getenv("VM_INDEX") == "0" {
		l := Must(net.Listen("tcp", port))(t)
		defer l.Close()
		conn = Must(l.Accept())(t)
	} else {
		var err error
		for deadline := time.Now().Add(Patience); conn == nil; time.Sleep(100 * time.Millisecond) {
			if conn, err = net.Dial("tcp", os.Getenv("VM_PEER")+port); err != nil && time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { conn.Close() })
	return Guest{json.NewEncoder(conn), json.NewDecoder(bufio.NewReader(conn))}
}

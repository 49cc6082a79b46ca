package ibv

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestMeshTwoGuests, rdmatest.OnRXE, rdmatest.TwoGuests)

// agentPort is where the second guest waits for the command that Open MPI gives to its remote
// shell.
const agentPort = "20518"

// agent is that remote shell. It gets a host and a command, and exits with the command's
// status.
const agent = `#!/bin/bash
shift
exec 3<>/dev/tcp/$VM_PEER/` + agentPort + `
echo "$*" >&3
read status <&3
exit $status
`

// TestMeshTwoGuests: Open MPI starts two ranks in each of two guests, or four with
// GOVERBS_LONG.
func TestMeshTwoGuests(t *testing.T) {
	// Open MPI requires the file even where it isn't used.
	file := filepath.Join(os.TempDir(), "goverbs-agent")
	rdmatest.Check(t, os.WriteFile(file, []byte(agent), 0o700))
	defer os.Remove(file)
	if os.Getenv("VM_INDEX") == "1" {
		remoteShell(t)
		return
	}
	session := firstGuest(t)
	defer session.Close()
	each := 2
	if os.Getenv("GOVERBS_LONG") != "" {
		each = 4
	}
	r := meshOpenMPI(t, 2*each, "--mca", "plm_rsh_agent", file, "--host", fmt.Sprintf("%s:%d,%s:%[2]d", os.Getenv("VM_ADDR"), each, os.Getenv("VM_PEER")))
	r.check(t, 2*each, -1)
	for i, h := range r.Hosts {
		if want := fmt.Sprintf("vm%d:%d", i/each, i); h.Host != want {
			t.Errorf("rank %d is on %s, not on %s", i, h.Host, want)
		}
	}
}

// firstGuest connects to the test in the second guest, which ends when the connection does.
func firstGuest(t *testing.T) net.Conn {
	t.Helper()
	for end := time.Now().Add(rdmatest.Patience); ; time.Sleep(100 * time.Millisecond) {
		conn, err := net.Dial("tcp", net.JoinHostPort(os.Getenv("VM_PEER"), agentPort))
		if err == nil {
			return conn
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// remoteShell is the second guest's part: it runs one command for the first guest.
func remoteShell(t *testing.T) {
	l := rdmatest.Must(net.Listen("tcp", ":"+agentPort))(t)
	session := rdmatest.Must(l.Accept())(t)
	defer session.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, session)
		l.Close() // in case no command comes
		ended <- err
	}()
	conn := rdmatest.Must(l.Accept())(t)
	line := rdmatest.Must(bufio.NewReader(conn).ReadString('\n'))(t)
	out, err := exec.Command("sh", "-c", strings.TrimSpace(line)).CombinedOutput()
	status := 0
	if err != nil {
		t.Errorf("%s: %v: %s", line, err, out)
		status = 1
	}
	rdmatest.Must(fmt.Fprintln(conn, status))(t)
	conn.Close()
	rdmatest.Check(t, <-ended)
}

package rdmatest

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal makes a terminal for a command: its standard files, and what ^C reaches. It returns the
// terminal's end for the test, and its other end.
func Terminal(t testing.TB, c *exec.Cmd) (master, slave *os.File) {
	t.Helper()
	master = Must(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))(t)
	t.Cleanup(func() { master.Close() })
	Check(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n := Must(unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN))(t)
	slave = Must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { slave.Close() })
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return master, slave
}

package fakedev

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// programVariable makes the test binary act as the program that uses the device.
const programVariable = "FAKEDEV_TEST_PROGRAM"

// none is a device that is only opened.
type none struct{}

func (none) Files() map[string]string {
	return map[string]string{"infiniband_verbs/abi_version": "6\n"}
}
func (none) Ioctl(*Call) error { return unix.ENOTTY }

func TestMain(m *testing.M) {
	if isStarter() {
		log.Fatal(starter())
	}
	if os.Getenv(programVariable) != "" {
		openAgainAndAgain()
		return
	}
	os.Exit(m.Run())
}

// openAgainAndAgain opens the device's files repeatedly. Each gets a new descriptor, above
// those that every program has open.
func openAgainAndAgain() {
	for i := range 2000 {
		for path, least := range map[string]int{"/dev/infiniband/uverbs0": firstFD, "/sys/class/infiniband_verbs/abi_version": 3} {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil || fd < least {
				fmt.Printf("opened %s for the %d-th time: %d, %v\n", path, i, fd, err)
				os.Exit(1)
			}
			unix.Close(fd)
		}
	}
}

// TestSignals: a signal to the supervisor doesn't corrupt its current answer. Go sends
// itself many signals.
func TestSignals(t *testing.T) {
	t.Setenv(programVariable, "1")
	end, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		pid := os.Getpid()
		for {
			select {
			case <-end:
				return
			default:
			}
			tasks, err := os.ReadDir("/proc/self/task")
			if err != nil {
				t.Error(err)
				return
			}
			for _, task := range tasks {
				if tid, err := strconv.Atoi(task.Name()); err == nil {
					unix.Tgkill(pid, tid, unix.SIGURG)
				}
			}
		}
	}()
	root := t.TempDir()
	if err := plant(root, none{}.Files()); err != nil {
		t.Fatal(err)
	}
	code, err := run(root, none{}, []string{"/proc/self/exe", os.Args[0]})
	close(end)
	<-ended
	if code != 0 || err != nil {
		t.Errorf("status %d, %v", code, err)
	}
}

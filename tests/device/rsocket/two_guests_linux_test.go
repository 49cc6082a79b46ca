package rsocket

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

var _ = rdmatest.Test(TestTwoGuestsLoss, rdmatest.OnRXE, rdmatest.TwoGuests)

// TestTwoGuestsLoss runs in both guests, of which the first is the server. Of the packets on the way to each,
// every hundredth is lost. The programs compare each byte, and rcopy's files have the same checksum. With
// GOVERBS_LONG it is 1 GiB each way.
func TestTwoGuestsLoss(t *testing.T) {
	transfers := 64 // of 64 KiB
	if long() {
		transfers = 1 << 30 / (64 << 10)
	}
	for _, command := range []string{
		"tc qdisc add dev eth0 ingress",
		"tc filter add dev eth0 ingress protocol ip pref 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff action pass random determ drop 100",
	} {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	other := meetGuest(t)
	serves := os.Getenv("VM_INDEX") == "0"
	at := os.Getenv("VM_PEER")
	if serves {
		at = os.Getenv("VM_ADDR")
	}
	ibv := rdmatest.Program(t, "ibv")
	commands := map[string][]string{"go": {ibv}, "c": nil}
	for _, who := range []struct{ server, client string }{{"go", "go"}, {"c", "go"}, {"go", "c"}} {
		for _, program := range []string{"rstream", "riostream", "rcopy"} {
			port := freePort()
			ok := t.Run(fmt.Sprintf("%s, %s-%s", program, who.server, who.client), func(t *testing.T) {
				told := false
				tell := func(r guestReport) {
					told = true
					rdmatest.Check(t, other.Encode(r))
				}
				t.Cleanup(func() {
					if !told {
						_ = other.Encode(guestReport{}) // the other side waits
					}
				})
				args := []string{"-p", port, "-S", "65536", "-C", fmt.Sprint(transfers), "-I", "1", "-T", "v", "-T", "b"}
				dir := t.TempDir()
				from, to := filepath.Join(dir, "from"), "/tmp/rcopied."+port
				if program == "rcopy" {
					args = []string{"-p", port}
				}
				start := func(maker string, more ...string) *rdmatest.Process {
					command := append(append(commands[maker][:len(commands[maker]):len(commands[maker])], program), more...)
					return rdmatest.Start(t, append(command, args...)...)
				}
				if serves {
					var p *rdmatest.Process
					if program == "rcopy" {
						p = start(who.server)
					} else {
						p = start(who.server, "-b", at)
					}
					listens(t, p, port)
					tell(guestReport{OK: true})
					theirs := hear(t, other)
					if program == "rcopy" {
						p.Kill()
						if sum := fileSum(t, to); sum != theirs.Sum {
							t.Errorf("the copy has the checksum %#x, want %#x", sum, theirs.Sum)
						}
						rdmatest.Check(t, os.Remove(to))
					} else {
						says(t, p, "custom")
					}
					tell(guestReport{OK: !t.Failed()})
					return
				}
				hear(t, other)
				var r guestReport
				if program == "rcopy" {
					writeFile(t, from, transfers*(64<<10))
					r.Sum = fileSum(t, from)
					start(who.client, from, at+":"+to).Succeeds(t)
				} else {
					says(t, start(who.client, "-s", at), "custom")
				}
				r.OK = !t.Failed()
				tell(r)
				hear(t, other)
			})
			if !ok {
				return // the tests are out of step
			}
		}
	}
}

// writeFile writes a file of random bytes.
func writeFile(t testing.TB, name string, size int) {
	t.Helper()
	f := rdmatest.Must(os.Create(name))(t)
	rdmatest.Must(io.CopyN(f, newStream(9), int64(size)))(t)
	rdmatest.Check(t, f.Close())
}

func fileSum(t testing.TB, name string) uint32 {
	t.Helper()
	f := rdmatest.Must(os.Open(name))(t)
	defer f.Close()
	sum := crc32.NewIEEE()
	rdmatest.Must(io.Copy(sum, f))(t)
	return sum.Sum32()
}

// A guests is a TCP connection to the test in the other guest.
type guests struct {
	*json.Encoder
	*json.Decoder
}

// A guestReport is what the tests tell each other.
type guestReport struct {
	OK  bool
	Sum uint32 // of the file that was copied
}

func meetGuest(t *testing.T) guests {
	t.Helper()
	const port = ":7599"
	var c net.Conn
	var err error
	if os.Getenv("VM_INDEX") == "0" {
		l := rdmatest.Must(net.Listen("tcp", port))(t)
		defer l.Close()
		c, err = l.Accept()
	} else {
		for deadline := time.Now().Add(rdmatest.Patience); ; time.Sleep(100 * time.Millisecond) {
			if c, err = net.Dial("tcp", os.Getenv("VM_PEER")+port); err == nil || time.Now().After(deadline) {
				break
			}
		}
	}
	rdmatest.Check(t, err)
	t.Cleanup(func() { c.Close() })
	return guests{json.NewEncoder(c), json.NewDecoder(bufio.NewReader(c))}
}

// hear waits for the next report of the other guest's test.
func hear(t *testing.T, other guests) guestReport {
	t.Helper()
	var r guestReport
	rdmatest.Check(t, other.Decode(&r))
	if !r.OK {
		t.Fatal("the other guest's test failed")
	}
	return r
}

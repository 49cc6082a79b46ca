package xfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"os/exec"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/xfer"
)

// ownerVar makes the test binary a process that owns memory until it is killed. It has the address to listen on.
const ownerVar = "GOVERBS_XFER_OWNER"

// Only the kernel's devices are there for several processes.
var (
	_ = rdmatest.Test(TestXferKilledPeer, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestXferCommand, rdmatest.NotVerbstest)
)

const owned = 1 << 20 // bytes

// owner says what it grants, and after each notification its number and the memory's checksum.
func owner() {
	ctx := context.Background()
	e := must(xfer.Open(withDevices(small)))
	m := must(e.Alloc(owned))
	g := must(m.All().Grant(xfer.GrantOptions{Access: xfer.Read | xfer.Write}))
	must(e.Listen(ctx, os.Getenv(ownerVar)))
	fmt.Printf("%s\n", must(json.Marshal(g.Remote())))
	for {
		n := must(e.Notified(ctx))
		fmt.Println(n.Tag, crc32.ChecksumIEEE(m.Bytes()))
	}
}

func withDevices(o xfer.Options) xfer.Options {
	o.Devices = rdmatest.Devices[:]
	return o
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// TestXferKilledPeer: a peer is killed in the middle of writes, and started again at the same address. What runs fails with
// ErrPeerLost, the old grant is stale, and the new one works.
func TestXferKilledPeer(t *testing.T) {
	rdmatest.CheckLeaks(t)
	const address = "127.0.0.1:7477"
	e := open(t, small)
	mine := memory(t, e, owned, 1)
	ctx := limited(t)
	var old xfer.Remote
	for life := range 3 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), ownerVar+"="+address)
		process := rdmatest.StartCmd(t, cmd)
		var remote xfer.Remote
		rdmatest.Check(t, json.Unmarshal([]byte(process.Line(t)), &remote))
		peer := rdmatest.Must(e.Dial(ctx, address))(t)
		if life > 0 {
			if err := peer.Write(ctx, old, mine.All()); !errors.Is(err, xfer.ErrStale) {
				t.Errorf("a write by the last life's grant: %v", err)
			}
		}
		old = remote
		rdmatest.Fill(mine.Bytes(), life)
		var b xfer.Batch
		b.Write(remote, mine.All())
		b.Notify(uint64(life))
		rdmatest.Check(t, peer.Do(ctx, &b))
		if said, want := process.Line(t), fmt.Sprint(life, crc32.ChecksumIEEE(mine.Bytes())); said != want {
			t.Fatalf("the peer says %q, want %q", said, want)
		}
		over := make(chan error, 1)
		go func() {
			for {
				if err := peer.Do(ctx, &b); err != nil {
					over <- err
					return
				}
			}
		}()
		process.Line(t)
		process.Kill()
		if err := <-over; !errors.Is(err, xfer.ErrPeerLost) {
			t.Errorf("the peer is killed: %v", err)
		}
		<-peer.Done()
	}
}

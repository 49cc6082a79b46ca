package ibv

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/tests/internal/corpus"
)

var _ = rdmatest.Test(TestCorpus, rdmatest.OnRXE)

// TestCorpus: command lines as people run them give what is taken from the C programs' output.
func TestCorpus(t *testing.T) {
	rdmatest.Command(t, "modprobe ib_umad") // ibstat of C reads what it makes
	rdmatest.Command(t, "ip link add corpus type veth peer name corpus-peer")
	t.Cleanup(func() { rdmatest.Command(t, "ip link delete corpus") })
	corpus.Run(t, false, strings.NewReplacer("NETDEV2", "corpus", "NETDEV", netDev, "DEVICE", device, "HOST", "192.168.77.1"))
}

package stress

import (
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/syscalltest"
	"github.com/goverbs/goverbs/verbs"
)

// These verbs sleep only on rxe. mlx5 neither resolves addresses with ARP nor queues
// packets in the kernel.
var _ = rdmatest.Test(TestOthersGoOn, rdmatest.OnRXE)

// TestOthersGoOn makes 16 verbs sleep in the kernel at the same time, with 1, 2 and 16
// processors. Other goroutines and the garbage collector continue meanwhile.
func TestOthersGoOn(t *testing.T) {
	// No host has the first address. The second has an arbitrary hardware address in the ARP
	// table.
	nobody, somebody := ipv4(192, 168, 77, 201), ipv4(192, 168, 77, 202)
	netDev := rdmatest.NetDev(rdmatest.Device)
	rdmatest.Command(t, fmt.Sprintf("ip neigh replace %v lladdr 02:00:00:00:00:07 dev %s", somebody.Addr(), netDev))
	t.Cleanup(func() { rdmatest.Command(t, fmt.Sprintf("ip neigh del %v dev %s", somebody.Addr(), netDev)) })

	for _, processors := range []int{1, 2, sleepers} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			c := rdmatest.Open(t)
			to := rdmatest.GlobalAddress(t, c)
			t.Run("RTR", func(t *testing.T) {
				qps, _ := sleepersOn(t, c)
				to.DGID = nobody
				asleep(t, func(i int) error {
					err := toRTR(qps[i], to)
					if err == nil {
						return fmt.Errorf("%s was found", nobody)
					}
					return nil
				})
			})
			t.Run("destroy", func(t *testing.T) {
				qps, mr := sleepersOn(t, c)
				to.DGID = somebody
				for _, qp := range qps {
					rdmatest.Check(t, toRTR(qp, to))
					a := verbs.QPAttr{State: verbs.QPRTS, SQPSN: 1}
					rdmatest.Check(t, qp.Modify(a, verbs.RequiredMask(verbs.UC, verbs.QPRTR, verbs.QPRTS)))
				}
				// A QP stays until its packets are sent, at eight packets a second.
				rdmatest.Command(t, "tc qdisc replace dev "+netDev+" root tbf rate 64kbit burst 2kb limit 1mb")
				defer rdmatest.Command(t, "tc qdisc del dev "+netDev+" root")
				for _, qp := range qps {
					rdmatest.Must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{mr.SGE(0, 900)}}))(t)
				}
				asleep(t, func(i int) error { return qps[i].Close() })
			})
		})
	}
}

const sleepers = 16

func ipv4(a, b, c, d byte) verbs.GID {
	return verbs.GID(netip.AddrFrom4([4]byte{a, b, c, d}).As16())
}

// sleepersOn creates a QP for each sleeper, and the memory that they send from.
func sleepersOn(t *testing.T, c *verbs.Device) (qps [sleepers]*verbs.QP, mr *verbs.MR) {
	t.Helper()
	pd := rdmatest.Must(c.AllocPD())(t)
	cq := rdmatest.Must(c.CreateCQ(verbs.CQOptions{MaxCQE: 2 * sleepers}))(t)
	mr = rdmatest.Must(pd.AllocMR(4096, verbs.MROptions{}))(t)
	for i := range qps {
		qps[i] = rdmatest.Must(pd.CreateQP(verbs.QPOptions{
			Type: verbs.UC, SendCQ: cq, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		}))(t)
	}
	t.Cleanup(func() {
		for _, qp := range qps {
			rdmatest.Close(t, qp)
		}
		for _, x := range []io.Closer{cq, mr, pd} {
			rdmatest.Close(t, x)
		}
	})
	return qps, mr
}

// toRTR takes a queue pair from RESET to RTR.
func toRTR(qp *verbs.QP, peer verbs.AHAttr) error {
	a := verbs.QPAttr{State: verbs.QPInit, Port: rdmatest.Port, PathMTU: verbs.MTU1024, DestQPN: 7, AH: peer}
	if err := qp.Modify(a, verbs.RequiredMask(verbs.UC, verbs.QPReset, verbs.QPInit)); err != nil {
		return err
	}
	a.State = verbs.QPRTR
	return qp.Modify(a, verbs.RequiredMask(verbs.UC, verbs.QPInit, verbs.QPRTR))
}

// asleep makes all sleepers' calls at the same time. It fails the test unless others
// continued during the longest call: the garbage collector started and finished, and each
// of 64 goroutines ran, several times from start to end.
func asleep(t *testing.T, call func(i int) error) {
	t.Helper()
	const enough = 3
	var begun, ended atomic.Int64 // rounds
	var stop atomic.Bool
	var background, callers sync.WaitGroup
	background.Go(func() {
		crowd := syscalltest.NewCrowd(workers)
		defer crowd.Close()
		for !stop.Load() {
			begun.Add(1)
			crowd.Round()
			ended.Add(1)
		}
	})
	var rounds [sleepers]int64
	var errs [sleepers]error
	for i := range rounds {
		callers.Go(func() {
			first := begun.Load()
			errs[i] = call(i)
			rounds[i] = ended.Load() - first
		})
	}
	callers.Wait()
	stop.Store(true)
	background.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	t.Logf("rounds while each slept: %v", rounds)
	if most := slices.Max(rounds[:]); most < enough {
		t.Errorf("others ran for %d rounds at most while %d calls slept, want %d", most, sleepers, enough)
	}
}

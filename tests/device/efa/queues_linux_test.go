package efa

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestPostedByHand sends a message without the library: it writes and reads queues at the
// addresses that efadv returns, in the formats of rdma-core's efa_io_defs.h.
func TestPostedByHand(t *testing.T) {
	const length, recvNumber, sendNumber = 48, 7, 5
	a, b := pair(t, verbs.SRD)
	sends, recvs := rdmatest.Must(efadv.QPQueues(a.qp))(t).Sends, rdmatest.Must(efadv.QPQueues(b.qp))(t).Recvs
	if sends.Size != 64 || sends.Count != depth || sends.MaxBatch == 0 || recvs.Size != 16 || recvs.Count < depth {
		t.Fatalf("%+v, %+v", sends, recvs)
	}
	fill(a.buf[:length], 1)

	// A receive (efa_io_rx_desc): the first and last buffer.
	at := unsafe.Slice((*uint64)(recvs.Addr), 2)
	at[0], at[1] = b.mr.Addr(), recvNumber|64<<16|uint64(b.mr.LKey())<<32|3<<62
	*(*uint32)(recvs.Doorbell) = 1

	// A send (efa_io_tx_wqe): a metadata descriptor, the first and last, that asks for a completion.
	ah := uint64(rdmatest.Must(efadv.AHNumber(a.ah))(t))
	at = unsafe.Slice((*uint64)(sends.Addr), 8)
	for i, word := range []uint64{
		sendNumber | 1<<23 | (1<<2|1<<3|1<<4)<<24 | uint64(b.end.QPN)<<32 | 1<<48, ah << 32, qkey, 0,
		length | uint64(a.mr.LKey())<<32, a.mr.Addr(), 0, 0,
	} {
		at[i] = word
	}
	*(*uint32)(sends.Doorbell) = 1

	for _, side := range []struct {
		*side
		number, queue, length uint16
	}{{b, recvNumber, 2, length}, {a, sendNumber, 1, 0}} {
		e := firstCQE(t, rdmatest.Must(efadv.CQQueue(side.cq))(t))
		number, status, flags := binary.LittleEndian.Uint16(e), e[2], e[3]
		if number != side.number || status != 0 || uint16(flags>>1&3) != side.queue ||
			binary.LittleEndian.Uint16(e[4:]) != uint16(side.end.QPN) || side.length != 0 && binary.LittleEndian.Uint16(e[6:]) != side.length {
			t.Errorf("completion % x, want request %d of QP %#x", e, side.number, side.end.QPN)
		}
	}
	if !bytes.Equal(b.buf[:length], a.buf[:length]) {
		t.Errorf("arrived: % x", b.buf[:length])
	}
}

// firstCQE waits for the first completion of a new CQ: a completion with phase 1, in any of
// its rings.
func firstCQE(t *testing.T, m efadv.CQMemory) []byte {
	t.Helper()
	all := unsafe.Slice((*byte)(m.Addr), m.Rings*m.Count*m.Size)
	for deadline := time.Now().Add(rdmatest.Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for ring := range m.Rings {
			if e := all[ring*m.Count*m.Size:][:m.Size]; e[3]&1 != 0 {
				return bytes.Clone(e)
			}
		}
	}
	t.Fatal("no completion")
	return nil
}

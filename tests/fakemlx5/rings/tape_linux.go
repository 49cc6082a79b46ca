package rings

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"
)

// A Tape is a Player that also records a driver's writes to the program's last queues, their
// doorbell records, and the device's registers. It fills all that memory with a poison at
// first, and again after each reading.
type Tape struct {
	*Player
	poison byte
	recv   Queue // the receive queue of the QP or an SRQ
	uars   []uar

	dumpedSends, dumpedRecvs, takenSends, takenRecvs uint16

	chainHead uint16 // the SRQ's next entry to receive into
}

// A uar is a UAR that the driver has mapped.
type uar struct {
	number uint32
	mem    []byte
}

const (
	page    = 4096 // a UAR's length
	srqHead = 16   // the header that links an SRQ's entries
)

// NewTape returns a tape of the last CQ and QP, and of the last SRQ if the QP has no
// receive queue.
func NewTape(poison byte) (*Tape, error) {
	cq, err := Last(CQ)
	if err != nil {
		return nil, err
	}
	qp, err := Last(QP)
	if err != nil {
		return nil, err
	}
	t := &Tape{Player: NewPlayer(qp, cq), poison: poison, recv: qp}
	head := 0
	if qp.RecvLen == 0 {
		if srq, err := Last(SRQ); err == nil {
			t.recv, head, t.srqn = srq, srqHead, srq.Number
		}
	}
	t.Wipe()
	for i := range t.recv.RecvLen {
		t.fill(t.entry(i)[head:])
	}
	return t, t.findUARs()
}

func (t *Tape) fill(b []byte) {
	for i := range b {
		b[i] = t.poison
	}
}

// entry returns a receive queue's entry.
func (t *Tape) entry(i uint32) []byte {
	return memory(t.recv.Recv+uint64(i*t.recv.RecvStride), int(t.recv.RecvStride))
}

// findUARs finds the UARs that the driver has mapped.
func (t *Tape) findUARs() error {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer f.Close()
	maps := bufio.NewScanner(f)
	for maps.Scan() {
		if !strings.Contains(maps.Text(), "memfd:registers") {
			continue
		}
		var from, to, offset uint64
		var access string
		if _, err := fmt.Sscanf(maps.Text(), "%x-%x %s %x", &from, &to, &access, &offset); err != nil {
			return fmt.Errorf("%s: %w", maps.Text(), err)
		}
		for ; from < to; from, offset = from+page, offset+page {
			p := memory(from, page)
			t.fill(p)
			t.uars = append(t.uars, uar{uint32(offset/page) - FirstUAR, p})
		}
	}
	return maps.Err()
}

// Geometry prints the sizes of the queues. The size of an SRQ is the driver's choice.
func (t *Tape) Geometry(w io.Writer) {
	fmt.Fprintf(w, "rings send %x receive %x stride %x cq %x stride %x\n", t.qp.Len, t.qp.RecvLen, t.recv.RecvStride, t.cq.Len, t.cq.Stride)
}

// Sends prints the requests posted to the send queue since the last call.
func (t *Tape) Sends(w io.Writer) {
	posted := t.doorbell(1)
	for ; t.dumpedSends != uint16(posted); t.dumpedSends++ {
		i := uint32(t.dumpedSends) % t.qp.Len
		fmt.Fprintf(w, "sq %x %x\n", i, memory(t.qp.Buf+uint64(i)*block, block))
	}
	fmt.Fprintf(w, "send doorbell %x\n", posted)
	t.registers(w)
}

// Recvs prints the receives posted since the last call.
func (t *Tape) Recvs(w io.Writer) {
	posted := record(t.recv.DB, 0)
	for ; t.dumpedRecvs != uint16(posted); t.dumpedRecvs++ {
		i := uint32(t.dumpedRecvs) % t.recv.RecvLen
		fmt.Fprintf(w, "rq %x %x\n", i, t.entry(i))
	}
	fmt.Fprintf(w, "receive doorbell %x\n", posted)
	t.registers(w)
}

// registers prints the writes to UARs, and marks UARs that don't belong to the queues.
func (t *Tape) registers(w io.Writer) {
	clean := make([]byte, 8)
	t.fill(clean)
	chosen := t.qp.UAR == NoUAR
	for _, u := range t.uars {
		for off := 0; off < page; off += 8 {
			if word := u.mem[off : off+8]; string(word) != string(clean) {
				fmt.Fprintf(w, "register %x %x\n", off, word)
				if own := u.number == t.qp.UAR || u.number == t.cq.UAR; !own && !chosen {
					fmt.Fprintf(w, "stray %x\n", u.number)
				}
				copy(word, clean)
			}
		}
	}
}

// Complete completes all posted requests, receives with messages of size bytes, and
// poisons their entries again.
func (t *Tape) Complete(size uint32) {
	t.CompleteSends()
	for ; t.takenSends != t.sent; t.takenSends++ {
		t.fill(memory(t.qp.Buf+uint64(uint32(t.takenSends)%t.qp.Len)*block, block))
	}
	if t.qp.RecvLen == 0 {
		t.completeShared(size)
		return
	}
	t.CompleteRecvs(size)
	for ; t.takenRecvs != t.received; t.takenRecvs++ {
		t.fill(t.entry(uint32(t.takenRecvs) % t.recv.RecvLen))
	}
}

// completeShared completes the receives of the SRQ, along its chain.
func (t *Tape) completeShared(size uint32) {
	if t.recv.Kind != SRQ {
		return
	}
	for posted := uint16(record(t.recv.DB, 0)); t.received != posted; t.received++ {
		t.complete(opReceived, t.chainHead, size, 0)
		t.chainHead = binary.BigEndian.Uint16(t.entry(uint32(t.chainHead) % t.recv.RecvLen)[2:])
	}
}

// Wipe poisons an idle send queue, including the bytes that a refused request wrote.
func (t *Tape) Wipe() { t.fill(memory(t.qp.Buf, int(t.qp.Len)*block)) }

// Skip omits posted and completed requests from the next output.
func (t *Tape) Skip() { t.dumpedSends, t.dumpedRecvs = t.sent, t.received }

// rawOp returns opReceived for completions of receives, else opRequester.
func rawOp(e *[64]byte) byte {
	const firstReceived, lastReceived, receiveFailed = 1, 4, 14
	if op := e[63] >> 4; op >= firstReceived && op <= lastReceived || op == receiveFailed {
		return opReceived
	}
	return opRequester
}

// Raw writes a completion queue entry to the CQ. It sets only the owner bit and, where the
// entry has ff, the QP's number and user index.
func (t *Tape) Raw(e *[64]byte) {
	if binary.BigEndian.Uint32(e[32:]) == 0xffffffff {
		binary.BigEndian.PutUint32(e[32:], t.userIndex(rawOp(e)))
	}
	if v := binary.BigEndian.Uint32(e[56:]); v&0xffffff == 0xffffff {
		binary.BigEndian.PutUint32(e[56:], v&^0xffffff|t.qp.Number)
	}
	i := *t.produced
	*t.produced++
	e[63] &^= 1
	if i&t.cq.Len != 0 {
		e[63] |= 1
	}
	to := memory(t.cq.Buf+uint64((i%t.cq.Len+1)*t.cq.Stride)-64, 64)
	copy(to[:60], e[:60])
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&to[60])), binary.NativeEndian.Uint32(e[60:]))
}

// Watch prints the words of the CQ's doorbell record that run has written, even with their
// old values, and its writes to registers.
func (t *Tape) Watch(w io.Writer, run func()) {
	words := unsafe.Slice((*uint32)(unsafe.Add(nil, t.cq.DB)), 2)
	clean := binary.NativeEndian.Uint32([]byte{t.poison, t.poison, t.poison, t.poison})
	was := [2]uint32{words[0], words[1]}
	words[0], words[1] = clean, clean
	run()
	for i, name := range []string{"cq", "arm"} {
		if words[i] == clean {
			words[i] = was[i]
		} else {
			fmt.Fprintf(w, "%s doorbell %x\n", name, record(t.cq.DB, i))
		}
	}
	t.registers(w)
}

// Consumed prints how far the CQ was polled.
func (t *Tape) Consumed(w io.Writer) {
	fmt.Fprintf(w, "cq doorbell %x\n", record(t.cq.DB, 0))
}

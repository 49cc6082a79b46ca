package mlx5bytes

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// dataAddr is the address of readable memory in both programs.
const dataAddr = 0x7e0000000000

// A script is a sequence of commands that both programs play, one per line, with numbers in
// hex. Its addresses and keys are literal, and don't refer to anything.
//
//	qp TYPE SENDS RECVS SEND_SGES RECV_SGES INLINE SIGNAL_ALL SRQ SIGNED BUILT TSO_HEADER
//	try (the same: whether there can be one)
//	cq TIMED
//	ah DLID SL PATH_BITS RATE GLOBAL HOPS CLASS FLOW
//	mw
//	send ID OPCODE FLAGS INLINE IMM REMOTE RKEY COMPARE_ADD SWAP AH QPN QKEY MW NEW_RKEY BIND_OFFSET BIND_LENGTH BIND_ACCESS COMPARE_MASK SWAP_MASK DC_KEY DC_STREAM HEADER MSS N (ADDR LENGTH LKEY)*
//	post
//	build (post, by calls for each operation)
//	recv ID N (ADDR LENGTH LKEY)*
//	postrecv
//	complete LENGTH
//	around TIMES (post both again and again, complete and poll it)
//	wipe (poison an idle send queue, with what is left of refused requests)
//	cqe BYTE*64
//	poll N
//	drain N (poll, and say only how many there were)
//	idle N (poll an empty CQ)
//	arm SOLICITED
//	sleep N (all that is done before waiting for a completion: poll, arm, and poll again)
//
// On a device there are also
//
//	bindpeer MW
//	pollpeer N
type script struct {
	strings.Builder
	device []string // arguments of the fake device
	env    []string // variables
}

func (s *script) add(command string, numbers ...any) {
	s.WriteString(command)
	for _, n := range numbers {
		fmt.Fprintf(s, " %x", n)
	}
	s.WriteByte('\n')
}

// A config has the options of a script's queues.
type config struct {
	typ                verbs.QPType
	sends, recvs       int
	sendSGEs, recvSGEs int
	inline             int
	signalAll, withSRQ bool
	signed             bool
	built              bool // post with ibv_wr_* calls or a SendBuilder
	tsoHeader          int
	onDevice           bool // requests must succeed
	noVerb             bool // requests for which libmlx5 has no verb
}

func (c config) String() string {
	s := fmt.Sprintf("%v, %d and %d WRs, %d and %d SGEs, %d inline, signal all %t, SRQ %t",
		c.typ, c.sends, c.recvs, c.sendSGEs, c.recvSGEs, c.inline, c.signalAll, c.withSRQ)
	if c.built {
		s += ", built"
	}
	return s
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func newScript(c config) *script {
	s := new(script)
	s.add("ah", 1, 0, 0, 0, 0, 0, 0, 0)
	s.add("ah", 0x1234, 5, 3, 2, 0, 0, 0, 0)
	s.add("ah", 0x4321, 15, 127, 0, 1, 64, 0x21, 0xfedcb)
	s.add("mw")
	s.add("mw")
	s.queues(c)
	return s
}

func (s *script) queues(c config) { s.describe("qp", c) }

func (s *script) describe(command string, c config) {
	s.add(command, uint32(c.typ), c.sends, c.recvs, c.sendSGEs, c.recvSGEs, c.inline, bit(c.signalAll), bit(c.withSRQ), bit(c.signed), bit(c.built), c.tsoHeader)
}

// A send has a work request's numbers.
type send struct {
	id            uint64
	op            verbs.Opcode
	flags         verbs.SendFlags
	inline        bool
	imm           uint32
	remote        uint64
	rkey          uint32
	compare, swap uint64
	ah            int
	qpn, qkey     uint32
	mw            int
	newKey        uint32
	bindAt        uint64
	bindLen       uint64
	bindAccess    verbs.AccessFlags
	masks         [2]uint64
	dcKey         uint64
	dcStream      uint16
	header, mss   int // OpTSO: the header's length, at the data's beginning
	sges          []verbs.SGE
}

func (s *script) send(w send) {
	numbers := []any{w.id, uint32(w.op), uint32(w.flags), bit(w.inline), w.imm, w.remote, w.rkey, w.compare, w.swap,
		w.ah, w.qpn, w.qkey, w.mw, w.newKey, w.bindAt, w.bindLen, uint64(w.bindAccess), w.masks[0], w.masks[1], w.dcKey, w.dcStream, w.header, w.mss}
	s.add("send", append(numbers, sgeNumbers(w.sges)...)...)
}

func (w send) size() (n uint32) {
	for _, e := range w.sges {
		n += e.Length
	}
	return n
}

func sgeNumbers(sges []verbs.SGE) []any {
	numbers := []any{len(sges)}
	for _, e := range sges {
		numbers = append(numbers, e.Addr, e.Length, e.LKey)
	}
	return numbers
}

// post posts the pending sends.
func (s *script) post(c config) {
	if c.built && !c.noVerb {
		s.add("build")
	} else {
		s.add("post")
	}
}

// finish completes and polls the posted requests.
func (s *script) finish(n int) {
	s.add("complete", 0)
	s.add("poll", n+1)
}

// A maker creates random work requests that fit a config.
type maker struct {
	*rand.Rand
	config
}

var ops = map[verbs.QPType][]verbs.Opcode{
	verbs.RC: {
		verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm,
		verbs.OpRDMARead, verbs.OpCompareSwap, verbs.OpFetchAdd, verbs.OpLocalInv, verbs.OpBindMW,
	},
	verbs.UC: {
		verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm,
		verbs.OpLocalInv, verbs.OpBindMW,
	},
	verbs.UD: {verbs.OpSend, verbs.OpSendImm},
	verbs.XRCSend: {
		verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm,
		verbs.OpRDMARead, verbs.OpCompareSwap, verbs.OpFetchAdd, verbs.OpLocalInv, verbs.OpBindMW,
	},
	verbs.DCI: {
		verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm,
		verbs.OpRDMARead, verbs.OpCompareSwap, verbs.OpFetchAdd, verbs.OpLocalInv, verbs.OpBindMW,
	},
	verbs.RawPacket: {verbs.OpSend, verbs.OpTSO},
}

func takesData(op verbs.Opcode) bool {
	return op != verbs.OpLocalInv && op != verbs.OpBindMW && op != verbs.OpNop
}

func isAtomic(op verbs.Opcode) bool {
	switch op {
	case verbs.OpCompareSwap, verbs.OpFetchAdd, verbs.OpMaskedCompareSwap, verbs.OpMaskedFetchAdd:
		return true
	}
	return false
}

func takesInline(op verbs.Opcode) bool {
	return takesData(op) && !isAtomic(op) && op != verbs.OpRDMARead
}

// send creates a request without data.
func (m *maker) send(op verbs.Opcode, flags verbs.SendFlags) send {
	w := send{
		id: m.Uint64(), op: op, flags: flags, imm: m.Uint32(), remote: m.Uint64() &^ 7, rkey: m.Uint32(),
		compare: m.Uint64(), swap: m.Uint64(), ah: m.IntN(3), qpn: m.Uint32() & 0xffffff, qkey: m.Uint32(),
		mw: m.IntN(2), newKey: m.Uint32(), bindAt: 16 * m.Uint64N(64), bindLen: 1 + m.Uint64N(4096),
		bindAccess: []verbs.AccessFlags{
			verbs.AccessRemoteRead, verbs.AccessRemoteWrite | verbs.AccessRemoteRead, verbs.AccessRemoteAtomic,
		}[m.IntN(3)],
		masks: [2]uint64{m.Uint64(), m.Uint64()}, dcKey: m.Uint64(),
	}
	if m.typ == verbs.DCI {
		w.dcStream = uint16(m.Uint32())
	}
	if op == verbs.OpTSO {
		w.header, w.mss = 14+m.IntN(m.tsoHeader-13), 1+m.IntN(9000)
	}
	if m.onDevice {
		w.remote, w.qkey, w.dcKey = dataAddr+remoteAt+m.Uint64N(1<<12)&^7, pairQKey, pairDCKey
		w.mw = bit(op == verbs.OpSendInv) // the peer's window
		w.ah = 0                          // the address of the peer
	}
	return w
}

// The layout of the programs' memory on a device: inline data from 0 on, then gathered
// data, the results of reads and atomics, receives, and the peer's memory.
const (
	gatherAt  = 4 << 10
	scatterAt = 24 << 10
	receiveAt = 36 << 10
	remoteAt  = 48 << 10

	pairQKey  = 0x1ee7
	pairDCKey = 0x1122334455667788
)

// scattered adds n SGEs to a request.
func (m *maker) scattered(w send, n int) send {
	for range n {
		sge := verbs.SGE{Addr: m.Uint64(), Length: 1 + m.Uint32N(1<<20), LKey: m.Uint32()}
		if m.typ == verbs.RawPacket {
			// The drivers copy a packet's header from there.
			sge.Addr, sge.Length = dataAddr+m.Uint64N(1<<12), 18+m.Uint32N(1000)
		}
		if m.onDevice {
			sge.Addr, sge.Length = dataAddr+gatherAt+m.Uint64N(16<<10), 1+m.Uint32N(400)
			if w.op == verbs.OpRDMARead {
				sge.Addr = dataAddr + scatterAt + m.Uint64N(8<<10)
			}
		}
		w.sges = append(w.sges, sge)
	}
	return w
}

// atomic adds the 8-byte SGE of atomics to a request.
func (m *maker) atomic(w send) send {
	w.sges = []verbs.SGE{{Addr: m.Uint64(), Length: 8, LKey: m.Uint32()}}
	if m.onDevice {
		w.sges[0].Addr = dataAddr + scatterAt + m.Uint64N(8<<10)
	}
	return w
}

// inlined adds n bytes of inline data, in at most three pieces, to a request.
func (m *maker) inlined(w send, n int) send {
	w.inline = true
	for pieces := 1 + m.IntN(min(3, m.sendSGEs)); pieces > 0; pieces-- {
		part := n
		if pieces > 1 {
			part = m.IntN(n + 1)
		}
		w.sges = append(w.sges, verbs.SGE{Addr: uint64(m.IntN(1 << 12)), Length: uint32(part)})
		n -= part
	}
	return w
}

// any creates a random request that fits.
func (m *maker) any() send {
	op := ops[m.typ][m.IntN(len(ops[m.typ]))]
	w := m.send(op, verbs.SendFlags(m.IntN(8))&(verbs.SendFence|verbs.SendSignaled|verbs.SendSolicited))
	switch {
	case isAtomic(op):
		return m.atomic(w)
	case takesInline(op) && m.inline > 0 && m.IntN(3) == 0:
		return m.inlined(w, m.IntN(m.inline+1))
	case takesData(op):
		return m.scattered(w, m.IntN(m.sendSGEs+1))
	}
	return w
}

func (s *script) recv(id uint64, sges []verbs.SGE) {
	s.add("recv", append([]any{id}, sgeNumbers(sges)...)...)
}

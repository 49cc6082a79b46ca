// Play is the equivalent of ../c/play.c with this library. It plays a script of verbs on
// the fake device and prints every byte that the library writes, or it plays on a device
// that logs them itself.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/tests/fakemlx5/rings"
	"github.com/goverbs/goverbs/verbs"
)

const (
	dataAddr = 0x7e0000000000
	dataLen  = 1 << 16
)

type game struct {
	poison byte
	out    *bufio.Writer

	ctx  *verbs.Device
	pd   *verbs.PD
	mr   *verbs.MR
	data []byte
	cq   *verbs.CQ
	qp   *verbs.QP
	srq  *verbs.SRQ

	channel *verbs.CompChannel // so that the CQ can be armed
	ahs     []*verbs.AH
	mws     []*verbs.MW

	sends []verbs.SendWR
	recvs []verbs.RecvWR

	tape *rings.Tape
	pair *pair // on a device, instead of the tape
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("play: ")
	g := &game{out: bufio.NewWriter(os.Stdout)}
	device := "mlx5_0"
	onDevice := len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "mlx5_")
	if onDevice {
		device = os.Args[1]
	} else if len(os.Args) > 1 {
		g.poison = byte(must(strconv.ParseUint(os.Args[1], 16, 8)))
	}
	g.open(device, onDevice)
	for script := bufio.NewScanner(os.Stdin); script.Scan(); {
		g.printf("> %s\n", script.Text())
		g.run(script.Text())
	}
	check(g.out.Flush())
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func (g *game) printf(format string, args ...any) { fmt.Fprintf(g.out, format, args...) }

func (g *game) open(device string, onDevice bool) {
	g.ctx = must(verbs.Open(device))
	// At the C program's address, because the compared bytes have addresses.
	p := must(unix.MmapPtr(-1, 0, unsafe.Add(nil, dataAddr), dataLen, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED_NOREPLACE))
	g.data = unsafe.Slice((*byte)(p), dataLen)
	for i := range g.data {
		g.data[i] = byte(i*7 + i>>8)
	}
	g.pd = must(g.ctx.AllocPD())
	g.channel = must(g.ctx.CreateCompChannel())
	access := verbs.AccessLocalWrite | verbs.AccessMWBind
	if onDevice {
		g.pair = newPair(g)
		access |= pairAccess
	}
	g.mr = must(g.pd.RegMR(g.data, verbs.MROptions{Access: access}))
	if onDevice {
		g.printf("key %x\nkey %x\n", g.mr.LKey(), g.mr.RKey())
		return
	}
	g.printf("mr %x %x\n", g.mr.LKey(), g.mr.RKey())
}

// A line is a command and its numbers.
type line struct{ fields []string }

func (l *line) number() uint64 {
	v := must(strconv.ParseUint(l.fields[0], 16, 64))
	l.fields = l.fields[1:]
	return v
}

func (l *line) int() int { return int(l.number()) }

func (g *game) run(text string) {
	fields := strings.Fields(text)
	l := &line{fields[1:]}
	switch fields[0] {
	case "qp":
		g.makeQueues(l)
	case "cq":
		var fields verbs.WCFields
		if l.number() != 0 {
			fields = verbs.WCFieldTimestamp
		}
		cq := must(g.ctx.CreateCQ(verbs.CQOptions{MaxCQE: 15, Fields: fields}))
		g.printf("flags %x\n", must(rings.Last(rings.CQ)).Flags)
		check(cq.Close())
	case "try":
		g.tryQueues(l)
	case "ah":
		g.makeAH(l)
	case "mw":
		mw := must(g.pd.AllocMW(verbs.MWType2))
		g.mws = append(g.mws, mw)
		if g.pair != nil {
			g.printf("key %x\n", mw.RKey())
		} else {
			g.printf("mw %x\n", mw.RKey())
		}
	case "send":
		g.addSend(l)
	case "post":
		n, _ := g.qp.PostSend(g.sends...)
		g.posted(n)
	case "build":
		n, _ := build(g.qp, g.sends)
		g.posted(n)
	case "recv":
		wr := verbs.RecvWR{WRID: l.number()}
		for range l.int() {
			wr.SGL = append(wr.SGL, g.sge(l))
		}
		g.recvs = append(g.recvs, wr)
	case "postrecv":
		post := g.qp.PostRecv
		if g.pair != nil {
			post = g.pair.postRecv
		} else if g.srq != nil {
			post = g.srq.PostRecv
		}
		n, _ := post(g.recvs...)
		g.recvs = nil
		g.printf("posted %x\n", n)
		if g.pair == nil {
			g.tape.Recvs(g.out)
		}
	case "around":
		g.around(l.int())
	case "wipe":
		g.tape.Wipe()
	case "complete":
		g.tape.Complete(uint32(l.number()))
	case "cqe":
		var e [64]byte
		for i := range e {
			e[i] = byte(l.number())
		}
		g.tape.Raw(&e)
	case "poll":
		if n := l.int(); g.pair != nil {
			g.pair.poll(g.cq, n)
		} else {
			g.poll(n)
		}
	case "drain":
		n, _ := g.cq.Poll(make([]verbs.WC, l.int()))
		g.printf("polled %x\n", n)
	case "idle":
		n := l.int()
		g.tape.Watch(g.out, func() {
			if n, err := g.cq.Poll(make([]verbs.WC, n)); n != 0 || err != nil {
				log.Fatal("poll of nothing: ", n, err)
			}
		})
	case "arm":
		solicited := l.number() != 0
		g.tape.Watch(g.out, func() { check(g.cq.Arm(solicited)) })
	case "sleep":
		n := l.int()
		g.tape.Watch(g.out, func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // which ends the wait when there is nothing else to do
			if n, err := g.cq.PollWait(ctx, make([]verbs.WC, n)); n != 0 || !errors.Is(err, context.Canceled) {
				log.Fatal("wait: ", n, err)
			}
		})
	case "pollpeer":
		g.pair.poll(g.pair.cq, l.int())
	case "bindpeer":
		g.pair.bind(g.mws[l.int()])
	default:
		log.Fatalf("unknown command: %s", text)
	}
}

// around posts the same sends and receives repeatedly, so that all counters wrap, and
// prints only their final values.
func (g *game) around(times int) {
	post := g.qp.PostRecv
	if g.srq != nil {
		post = g.srq.PostRecv
	}
	wcs := make([]verbs.WC, 2)
	for range times {
		must(g.qp.PostSend(g.sends...))
		must(post(g.recvs...))
		g.tape.Complete(64)
		if n := must(g.cq.Poll(wcs)); n != len(wcs) {
			log.Fatalf("polled %d", n)
		}
	}
	g.sends, g.recvs = nil, nil
	g.tape.Skip()
	g.tape.Sends(g.out)
	g.tape.Recvs(g.out)
	g.tape.Consumed(g.out)
}

func (g *game) posted(n int) {
	g.sends = nil
	g.printf("posted %x\n", n)
	if g.pair == nil {
		g.tape.Sends(g.out)
	}
}

// sge reads an SGE. On a device, it uses the memory's real key.
func (g *game) sge(l *line) verbs.SGE {
	sge := verbs.SGE{Addr: l.number(), Length: uint32(l.number()), LKey: uint32(l.number())}
	if g.pair != nil {
		sge.LKey = g.mr.LKey()
	}
	return sge
}

// readQP reads a QP's options, and whether it receives from an SRQ.
func readQP(l *line) (verbs.QPOptions, bool) {
	o := verbs.QPOptions{Type: verbs.QPType(l.number())}
	o.Cap = verbs.QPCap{MaxSendWR: l.int(), MaxRecvWR: l.int(), MaxSendSGE: l.int(), MaxRecvSGE: l.int(), MaxInlineData: l.int()}
	o.SignalAll = l.number() != 0
	useSRQ := l.number() != 0
	o.SignWQEs = l.number() != 0
	l.number() // whether C builds
	o.MaxTSOHeader = l.int()
	return o, useSRQ
}

// tryQueues prints the capabilities of a QP, if it can be created.
func (g *game) tryQueues(l *line) {
	o, _ := readQP(l)
	if o.Type == verbs.XRCSend || o.Type == verbs.DCI {
		o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = 0, 0
	}
	o.SendCQ, o.RecvCQ = g.cq, g.cq
	if o.Type == verbs.XRCSend {
		o.RecvCQ = nil
	}
	qp, err := g.pd.CreateQP(o)
	if err != nil {
		g.printf("refused\n")
		return
	}
	g.printf("%s\n", capText(qp.Cap()))
	check(qp.Close())
}

func capText(c verbs.QPCap) string {
	return fmt.Sprintf("cap %x %x %x %x %x", c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInlineData)
}

func (g *game) makeQueues(l *line) {
	o, useSRQ := readQP(l)
	capacity := o.Cap
	if o.Type == verbs.XRCSend || o.Type == verbs.DCI {
		o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = 0, 0 // the peer has the receive queue
	}
	if g.pair != nil {
		g.pair.close()
	}
	if g.qp != nil {
		check(g.qp.Close())
		check(g.cq.Close())
		check(g.srq.Close())
	}
	g.srq = nil
	if useSRQ && g.pair == nil {
		g.srq = must(g.pd.CreateSRQ(verbs.SRQOptions{MaxWR: o.Cap.MaxRecvWR, MaxSGE: o.Cap.MaxRecvSGE}))
		g.printf("srq wr %x sge %x\n", g.srq.MaxWR(), g.srq.MaxSGE())
		o.SRQ = g.srq
		o.Cap.MaxRecvWR, o.Cap.MaxRecvSGE = 0, 0
	}
	g.cq = must(g.ctx.CreateCQ(verbs.CQOptions{MaxCQE: 255, Channel: g.channel}))
	o.SendCQ, o.RecvCQ = g.cq, g.cq
	if o.Type == verbs.XRCSend {
		o.RecvCQ = nil
	}
	g.qp = must(g.pd.CreateQP(o))
	if g.pair != nil {
		g.pair.make(g.qp, useSRQ, capacity)
		return
	}
	for _, to := range []verbs.QPState{verbs.QPInit, verbs.QPRTR, verbs.QPRTS} {
		a := verbs.QPAttr{State: to, Port: 1, PathMTU: verbs.MTU1024, AH: verbs.AHAttr{DLID: 1, Port: 1}}
		check(g.qp.Modify(a, mask(o.Type, to)))
	}
	g.tape = must(rings.NewTape(g.poison))
	g.printf("qp %x %s\n", g.qp.Num(), capText(g.qp.Cap()))
	g.tape.Geometry(g.out)
}

// mask returns the attributes that a transition to the state requires.
func mask(typ verbs.QPType, to verbs.QPState) verbs.QPAttrMask {
	m := verbs.QPAttrState
	reliable := typ == verbs.RC || typ == verbs.XRCSend || typ == verbs.DCI
	if typ == verbs.RawPacket {
		if to == verbs.QPInit {
			m |= verbs.QPAttrPort
		}
		return m
	}
	switch to {
	case verbs.QPInit:
		m |= verbs.QPAttrPKeyIndex | verbs.QPAttrPort
		if typ == verbs.UD {
			return m | verbs.QPAttrQKey
		}
		if typ == verbs.DCI {
			return m
		}
		return m | verbs.QPAttrAccess
	case verbs.QPRTR:
		if typ != verbs.UD {
			m |= verbs.QPAttrAV | verbs.QPAttrPathMTU
		}
		if typ != verbs.UD && typ != verbs.DCI && typ != verbs.DCT {
			m |= verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
		}
		if typ == verbs.RC || typ == verbs.XRCRecv {
			m |= verbs.QPAttrMaxDestRDAtomic
		}
		if typ == verbs.RC || typ == verbs.XRCRecv || typ == verbs.DCT {
			m |= verbs.QPAttrMinRNRTimer
		}
	case verbs.QPRTS:
		m |= verbs.QPAttrSQPSN
		if typ == verbs.XRCRecv {
			m |= verbs.QPAttrTimeout
		}
		if reliable {
			m |= verbs.QPAttrTimeout | verbs.QPAttrRetryCount | verbs.QPAttrRNRRetry | verbs.QPAttrMaxRDAtomic
		}
	}
	return m
}

func (g *game) makeAH(l *line) {
	a := verbs.AHAttr{
		Port: 1, DLID: uint16(l.number()), SL: uint8(l.number()), SrcPathBits: uint8(l.number()), StaticRate: verbs.Rate(l.number()),
		IsGlobal: l.number() != 0, HopLimit: uint8(l.number()), TrafficClass: uint8(l.number()), FlowLabel: uint32(l.number()),
	}
	for i := range a.DGID {
		a.DGID[i] = byte(i + 1)
	}
	if g.pair != nil && g.pair.way.IsGlobal {
		a = g.pair.way
	} else if g.pair != nil {
		a.DLID = g.pair.way.DLID
	}
	ah, err := g.pd.CreateAH(a)
	if err != nil {
		g.printf("refused\n")
	}
	g.ahs = append(g.ahs, ah)
}

func (g *game) addSend(l *line) {
	wr := verbs.SendWR{WRID: l.number(), Opcode: verbs.Opcode(l.number()), Flags: verbs.SendFlags(l.number())}
	inline := l.number() != 0
	wr.Imm = uint32(l.number())
	wr.InvalidateRKey = wr.Imm
	wr.Remote.Addr, wr.Remote.RKey = l.number(), uint32(l.number())
	wr.Compare, wr.Swap = l.number(), l.number()
	wr.Add = wr.Compare
	ah := l.int()
	wr.RemoteQPN, wr.RemoteQKey = uint32(l.number()), uint32(l.number())
	wr.RemoteSRQN = wr.RemoteQPN
	mw := l.int()
	wr.NewRKey = uint32(l.number())
	bind := verbs.MWBindInfo{Addr: l.number() + dataAddr, Length: l.number(), Access: verbs.AccessFlags(l.number())}
	wr.CompareMask, wr.SwapMask, wr.DCKey = l.number(), l.number(), l.number()
	wr.DCStream = uint16(l.number())
	wr.Header, wr.MSS = g.data[:l.number()], uint16(l.number())
	switch wr.Opcode {
	case verbs.OpBindMW, verbs.OpLocalInv, verbs.OpNop: // they send nothing
	default:
		if g.qp.Type() == verbs.UD || g.qp.Type() == verbs.DCI {
			wr.AH = g.ahs[ah]
		}
	}
	if wr.Opcode == verbs.OpBindMW {
		wr.MW, wr.Bind = g.mws[mw], bind
		wr.Bind.MR = g.mr
	}
	if g.pair != nil {
		g.pair.number(&wr, g.mws[mw])
	}
	if inline {
		wr.Inline = []byte{}
	}
	for range l.int() {
		sge := g.sge(l)
		if inline {
			wr.Inline = append(wr.Inline, g.data[sge.Addr:][:sge.Length]...)
		} else {
			wr.SGL = append(wr.SGL, sge)
		}
	}
	g.sends = append(g.sends, wr)
}

func (g *game) poll(n int) {
	wcs := make([]verbs.WC, n)
	n, err := g.cq.Poll(wcs)
	if err != nil {
		g.printf("polled error\n")
	} else {
		g.printf("polled ok\n")
	}
	for i := range wcs[:n] {
		g.printWC(&wcs[i])
	}
	g.tape.Consumed(g.out)
}

func (g *game) printWC(wc *verbs.WC) {
	g.printf("wc %x status %x qpn %x vendor %x", wc.WRID, uint32(wc.Status), wc.QPNum, wc.VendorErr)
	if wc.Status == verbs.WCSuccess {
		received := wc.Opcode&verbs.WCRecv != 0
		g.printf(" opcode %x", uint32(wc.Opcode))
		if received || wc.Opcode == verbs.WCRDMARead || wc.Opcode == verbs.WCCompareSwap || wc.Opcode == verbs.WCFetchAdd {
			g.printf(" length %x", wc.ByteLen)
		}
		if received {
			g.printf(" flags %x", cFlags(wc.Flags))
			if imm, ok := wc.Imm(); ok {
				g.printf(" imm %x", binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, imm)))
			}
			if key, ok := wc.InvalidatedRKey(); ok {
				g.printf(" imm %x", key)
			}
			g.printf(" src %x pkey %x slid %x sl %x bits %x", wc.SrcQP, wc.PKeyIndex, wc.SLID, wc.SL, wc.DLIDPathBits)
		}
	}
	g.printf("\n")
}

// cFlags returns a completion's flags in the values of enum ibv_wc_flags.
func cFlags(f verbs.WCFlags) (n uint32) {
	for i, flag := range []verbs.WCFlags{verbs.WCGRH, verbs.WCWithImm, 0, verbs.WCWithInv} {
		if f&flag != 0 {
			n |= 1 << i
		}
	}
	return n
}

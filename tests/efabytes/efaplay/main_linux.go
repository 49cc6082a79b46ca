// Efaplay plays a script on the device of tests/fakeefa with package verbs: see ../bytes_linux_test.go.
// Its output is that of ../c/play.c.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/verbs"
)

// As in ../c/play.c, and tests/fakeefa.
const (
	fd      = 1000
	room    = 1 << 24
	recvAt  = 1 << 22
	bellsAt = 1 << 23
	page    = 4096
	shown   = 1 << 20
	cqRoom  = 1 << 34

	cqes = 256

	inlineWrites = 2 // in a script: writes may have inline data
	rdmaWrite    = 2 // in a completion
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func mapped(at int64) []byte {
	return must(unix.Mmap(fd, at, shown, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
}

var (
	in  = bufio.NewReader(os.Stdin)
	out = bufio.NewWriter(os.Stdout)
)

func printf(format string, args ...any) { fmt.Fprintf(out, format, args...) }

func read(v ...any) {
	for _, p := range v {
		if _, err := fmt.Fscan(in, p); err != nil {
			log.Fatal("script: ", err)
		}
	}
}

// show prints the entries of a queue that aren't zero, without the requests' numbers.
func show(name string, b []byte, size, n, number int) {
	zero := make([]byte, size)
	for i := range n {
		if e := b[i*size:][:size]; !bytes.Equal(e, zero) {
			e = bytes.Clone(e)
			e[number], e[number+1] = 0, 0
			printf("%s %d %x\n", name, i, e)
		}
	}
}

func readSGL(n int) []verbs.SGE {
	sgl := make([]verbs.SGE, n)
	for j := range sgl {
		read(&sgl[j].Addr, &sgl[j].Length, &sgl[j].LKey)
	}
	return sgl
}

func main() {
	log.SetFlags(0)
	devices := must(verbs.Devices())
	ctx := must(devices[0].Open())
	pd := must(ctx.AllocPD())
	ah := must(pd.CreateAH(verbs.AHAttr{IsGlobal: true, Port: 1}))
	var command, typ string
	var events int
	o := verbs.QPOptions{Type: verbs.UD}
	var writes int
	read(&command, &typ, &events, &o.Cap.MaxSendWR, &o.Cap.MaxSendSGE, &o.Cap.MaxRecvWR, &o.Cap.MaxRecvSGE, &o.Cap.MaxInlineData, &writes)
	if typ == "SRD" {
		o.Type = verbs.SRD
	}
	wqe := 64
	if o.Cap.MaxInlineData > 32 || writes == inlineWrites {
		wqe = 128
	}
	cq := must(ctx.CreateCQ(verbs.CQOptions{MaxCQE: cqes, PollOnly: events == 0, Channel: channel(ctx, events)}))
	var size uint32
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, 0xefa, uintptr(unsafe.Pointer(&size))); errno != 0 {
		log.Fatal(errno)
	}
	o.SendCQ, o.RecvCQ = cq, cq
	qp := create(pd, o, writes)
	c := qp.Cap()
	printf("cap %d %d %d %d %d\n", c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInlineData)
	check(qp.Activate(verbs.ActivateOptions{Port: 1, QKey: 1}))
	sq, rq, bells, ring, cqBell := mapped(room), mapped(room+recvAt), mapped(room+bellsAt), mapped(cqRoom+room), mapped(cqRoom+room+bellsAt)
	completions, places := 0, 0
	var sendNumbers, recvNumbers [][2]byte // of requests, in their order: a completion names one
	for {
		if _, err := fmt.Fscan(in, &command); err != nil {
			check(out.Flush())
			return
		}
		printf("> %s\n", command)
		switch command {
		case "s":
			var n int
			read(&n)
			wrs := make([]verbs.SendWR, n)
			for i := range wrs {
				wr := &wrs[i]
				var op uint32
				var data, sges int
				read(&wr.WRID, &op, &wr.Imm, &wr.RemoteQPN, &wr.RemoteQKey, &wr.Remote.Addr, &wr.Remote.RKey, &data, &sges)
				wr.Opcode, wr.Flags, wr.AH, wr.SGL = verbs.Opcode(op), verbs.SendSignaled, ah, readSGL(sges)
				if data > 0 {
					wr.SGL, wr.Inline = nil, make([]byte, data-1)
					for j := range wr.Inline {
						wr.Inline[j] = byte(int(wr.WRID) + j)
					}
				}
			}
			report(qp.PostSend(wrs...))
			for range wrs {
				sendNumbers = append(sendNumbers, [2]byte(sq[len(sendNumbers)%c.MaxSendWR*wqe:]))
			}
		case "r":
			var wr verbs.RecvWR
			var n int
			read(&wr.WRID, &n)
			wr.SGL = readSGL(n)
			report(qp.PostRecv(wr))
			recvNumbers = append(recvNumbers, [2]byte(rq[places%(c.MaxRecvWR*o.Cap.MaxRecvSGE)*16+8:]))
			places += n
		case "c":
			var recv, place, status, op, imm, length, source uint32
			read(&recv, &place, &status, &op, &imm, &length, &source)
			e := ring[completions%cqes*int(size):][:size]
			clear(e)
			numbers, queue := sendNumbers, byte(1)
			if recv != 0 {
				numbers, queue = recvNumbers, 2
			}
			copy(e, numbers[place][:])
			e[2] = byte(status)
			binary.LittleEndian.PutUint16(e[4:], uint16(qp.Num()))
			binary.LittleEndian.PutUint16(e[6:], uint16(length))
			e[8], e[10] = byte(source), byte(source+1)
			binary.LittleEndian.PutUint32(e[12:], imm)
			if recv != 0 && op == rdmaWrite {
				binary.LittleEndian.PutUint16(e[16:], uint16(length>>16))
			}
			flags := queue<<1 | byte(op)<<4
			if imm != 0 {
				flags |= 8
			}
			if completions/cqes%2 == 0 {
				flags |= 1
			}
			e[3] = flags
			completions++
		case "p":
			var wc [8]verbs.WC
			n := must(cq.Poll(wc[:]))
			printf("polled %d\n", n)
			for _, w := range wc[:n] {
				printf("wc %d status %d opcode %d vendor %d qp %d", w.WRID, w.Status, w.Opcode, w.VendorErr, w.QPNum)
				if w.Opcode&verbs.WCRecv != 0 && w.Status == verbs.WCSuccess {
					imm, ok := w.Imm()
					if !ok {
						imm = 0
					}
					printf(" length %d src %d slid %d flags %d imm %x", w.ByteLen, w.SrcQP, w.SLID, w.Flags&^verbs.WCGRH, imm)
				}
				printf("\n")
			}
		case "a":
			check(cq.Arm(false))
		case "z":
			show("sq", sq, wqe, c.MaxSendWR, 0)
			show("rq", rq, 16, page/16, 8) // the whole mapping of the driver
		}
		printf("bells %d %d %x\n", binary.LittleEndian.Uint32(bells[0x10:]), binary.LittleEndian.Uint32(bells[page+0x20:]), binary.LittleEndian.Uint32(cqBell[0x40:]))
	}
}

func create(pd *verbs.PD, o verbs.QPOptions, writes int) *verbs.QP {
	if writes == inlineWrites {
		return must(efadv.CreateQP(pd, efadv.QPOptions{QPOptions: o, InlineWrite: true}))
	}
	return must(pd.CreateQP(o))
}

func channel(ctx *verbs.Device, events int) *verbs.CompChannel {
	if events == 0 {
		return nil
	}
	return must(ctx.CreateCompChannel())
}

func report(_ int, err error) {
	if err != nil {
		printf("posted not\n")
		return
	}
	printf("posted all\n")
}

package firmware

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

// opcodesInOrder returns all opcodes, always in the same order.
func opcodesInOrder() []uint16 {
	var all []uint16
	for opcode := range opcodes {
		all = append(all, opcode)
	}
	slices.Sort(all)
	return all
}

// hostile returns a started driver with a few objects, so that numbers in an inbox can
// name one.
func hostile(t testing.TB) *driver {
	d := started(t)
	d.hostile = true
	eqn, _ := d.createEQ(0, 0x0a)
	d.createCQ(eqn)
	d.do(0x800, nil)
	d.do(0x80e, nil)
	return d
}

// hostileEthernet is the same with an Ethernet port, and with objects for frames.
func hostileEthernet(t testing.TB) *driver {
	d := startedOf(t, true)
	d.hostile = true
	q := d.raw(int(d.do(0x816, nil).Get("transport_domain")), false)
	d.do(0x92f, set("table_id", d.flow(0, 5, toTIR, q.tirn, 0, int(d.do(0x939, nil).Get("flow_counter_id")))))
	return d
}

// statuses has all statuses.
var statuses = []Status{
	OK, BadOp, BadParam, BadSysState, BadRes, ResBusy, LimitErr, BadResState, BadIndex, NoRes, BadQPState, BadSize, BadInLen, BadOutLen,
}

// FuzzCommand executes commands with the fuzzer's inboxes. Each ends with a valid status.
// A refused command has changed nothing, and its outbox has nothing besides the status.
func FuzzCommand(f *testing.F) {
	all := opcodesInOrder()
	for i := range 2 * len(all) {
		f.Add(uint16(i), uint16(64), []byte{1, 0, 1, 0xff, 1})
	}
	newDrivers := [2]func(t testing.TB) *driver{hostile, hostileEthernet}
	drivers := [2]*driver{hostile(f), hostileEthernet(f)}
	f.Fuzz(func(t *testing.T, which, outSize uint16, body []byte) {
		opcode := all[int(which)%len(all)]
		link := int(which) / len(all) % 2
		d := drivers[link]
		in := append(binary.BigEndian.AppendUint16(nil, opcode), body...)
		in = append(in, make([]byte, minBox)...)
		out := make([]byte, minBox+int(outSize))
		for i := range out {
			out[i] = 0xa5 // what the driver left there
		}
		before := d.h.Resources()
		d.h.execute(in, out)
		status := Status(out[0])
		if !slices.Contains(statuses, status) {
			t.Errorf("%s: status %#x is none", opcodes[opcode].name, status)
		}
		if i := slices.IndexFunc(out[1:], func(b byte) bool { return b != 0 }); status != OK && i >= 0 {
			t.Errorf("%s: status %#x, and byte %d of the answer is %#x", opcodes[opcode].name, status, 1+i, out[1+i])
		}
		if after := d.h.Resources(); status != OK && !maps.Equal(before, after) {
			t.Errorf("%s: status %#x, and of the objects %v there are %v", opcodes[opcode].name, status, before, after)
		}
		d.h.Run()
		if opcode == 0x103 || opcode == 0x105 || opcode == 0x104 {
			drivers[link] = newDrivers[link](t)
		}
	})
}

// Commands with plausible nonsense, the same in every run: numbers small enough to name an
// object, random flags and sizes.
func TestNonsense(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := opcodesInOrder()
	statuses := map[Status]int{}
	for i := range 20 {
		d := hostile(t)
		if i%2 == 1 {
			d = hostileEthernet(t)
		}
		for range 5000 {
			opcode := all[r.IntN(len(all))]
			if opcode == 0x103 || opcode == 0x105 {
				continue
			}
			l := ifc.Of(opcodes[opcode].name + "_in")
			in := make([]byte, l.Size()+8*r.IntN(70))
			for range r.IntN(12) {
				at := 2 + r.IntN(len(in)-2)
				in[at] = byte(r.IntN(256) >> r.IntN(8))
			}
			for i := l.Size(); i+8 <= len(in); i += 8 {
				binary.BigEndian.PutUint64(in[i:], ramBase+uint64(r.IntN(ramSize/PageSize))*PageSize)
			}
			binary.BigEndian.PutUint16(in, opcode)
			if r.IntN(4) > 0 && len(in) > 12 {
				binary.BigEndian.PutUint32(in[8:], uint32(r.IntN(4)))
			}
			if r.IntN(8) == 0 {
				in = in[:minBox+r.IntN(len(in)-minBox)]
			}
			out := make([]byte, minBox+r.IntN(600))
			d.h.execute(in, out)
			statuses[Status(out[0])]++
			if r.IntN(20) == 0 {
				offset := uint64(r.IntN(64)*PageSize) | []uint64{uarArmCQ, uarArmEQ, uarUpdateEQ, 0x800, 0x900}[r.IntN(5)]
				d.write(offset, r.Uint32()>>r.IntN(32), r.Uint32()>>r.IntN(32))
			}
			d.h.Run()
		}
		d.do(0x103, nil)
		for kind, n := range d.h.Resources() {
			if n != 0 && kind != "pages" {
				t.Errorf("%d %s left after TEARDOWN_HCA", n, kind)
			}
		}
	}
	t.Log("statuses:", statuses)
	for _, s := range []Status{OK, BadParam, BadRes, BadOutLen} {
		if statuses[s] == 0 {
			t.Errorf("no command ended with status %#x: this tests little", s)
		}
	}
}

// FuzzQueue gives the firmware the fuzzer's command queue entries and mailboxes.
func FuzzQueue(f *testing.F) {
	entry := make([]byte, 64)
	entry[0], entry[7], entry[59], entry[63] = 7, 16, 16, 1
	f.Add(entry, []byte{})
	d := hostile(f)
	queue := d.ram.Bytes(d.h.seg.queue(), PageSize)
	box := d.pages(2)
	f.Fuzz(func(t *testing.T, entry, mailbox []byte) {
		clear(queue)
		copy(queue, entry)
		binary.BigEndian.PutUint64(queue[8:], box)
		binary.BigEndian.PutUint64(queue[48:], box)
		copy(d.ram.Bytes(box, 2*PageSize), mailbox)
		d.write(segDoorbell, 0xffffffff)
		if queue[63]&1 != 0 && d.h.seg.nic() == nicFull {
			t.Error("the entry stays the HCA's")
		}
		if !d.h.initialized {
			*d = *hostile(t)
			queue = d.ram.Bytes(d.h.seg.queue(), PageSize)
			box = d.pages(2)
		}
	})
}

// writes decodes FuzzWrite's input to writes to BAR0: an offset, a length and the bytes of
// each.
func writes(in []byte, each func(offset uint64, data []byte)) {
	for len(in) >= 5 {
		offset, n := uint64(binary.BigEndian.Uint32(in)), int(in[4])
		in = in[5:]
		n = min(n, len(in))
		each(offset, in[:n])
		in = in[n:]
	}
}

// FuzzWrite has a guest write anything of any size anywhere in BAR0 of an HCA with queues
// of all kinds. Afterwards, a driver can still reset the HCA.
func FuzzWrite(f *testing.F) {
	word := func(offset uint32, data ...byte) []byte {
		return append(append(binary.BigEndian.AppendUint32(nil, offset), byte(len(data))), data...)
	}
	for page := range uint32(8) {
		for _, register := range []uint32{uarArmCQ, uarArmEQ, uarUpdateEQ, uarSend, uarSend + 0x100} {
			f.Add(word(page*PageSize+register, 0, 0, 1, 0, 0, 0, 0x50, 1))
			f.Add(word(page*PageSize+register, 1, 0, 0, 0))
		}
		nop := make([]byte, 64)
		nop[6], nop[7] = 0x50, 2
		f.Add(append(word(page*PageSize+uarSend, nop[:8]...), word(page*PageSize+uarSend+8, nop...)...))
	}
	f.Add(append(word(segQueueLow, 0xff, 0xff, 0xf0, 0), word(segDoorbell, 0xff, 0xff, 0xff, 0xff)...))
	f.Add(word(segQueueLow, 0, 0, nicReset, 0))
	f.Add(word(PageSize-2, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Fuzz(func(t *testing.T, in []byte) {
		d := hostile(t)
		s := d.setup()
		for _, service := range []int{serviceRC, serviceUD} {
			qpn := d.doWith(0x500, 8, 0, d.qp(s, service)).Get("qpn")
			for _, opcode := range []uint16{0x502, 0x503, 0x504} {
				d.do(opcode, func(in ifc.View) {
					for field, value := range map[string]uint64{
						"primary_address_path.vhca_port_num": 1, "primary_address_path.rlid": 1,
						"pm_state": 3, "mtu": 3, "log_msg_max": 30, "remote_qpn": qpn,
					} {
						in.Set("qpc."+field, value)
					}
					in.Set("qpn", qpn)
				})
			}
		}
		writes(in, func(offset uint64, data []byte) {
			d.h.Write(offset, data)
			d.h.Read(offset, make([]byte, len(data)))
			d.h.Run()
		})
		for range 1000 {
			if more, _ := d.h.Run(); !more {
				break
			}
		}
		d.write(segQueueLow, nicReset<<8)
		queue := d.pages(1)
		d.write(segQueueHigh, uint32(queue>>32))
		d.write(segQueueLow, uint32(queue))
		d.do(0x104, nil)
	})
}

package firmware

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/tests/hca/ifc"
)

// opcodesInOrder are all opcodes, always in the same order.
func opcodesInOrder() []uint16 {
	var all []uint16
	for opcode := range opcodes {
		all = append(all, opcode)
	}
	slices.Sort(all)
	return all
}

// hostile is a started driver with a few objects, so that numbers in an inbox
// can hit something.
func hostile(t testing.TB) *driver {
	d := started(t)
	eqn, _ := d.createEQ(0, 0x0a)
	d.createCQ(eqn)
	d.do(0x800, nil)
	d.do(0x80e, nil)
	return d
}

// FuzzCommand carries out commands with inboxes as the fuzzer likes them: each
// must end with a status, which reads as such.
func FuzzCommand(f *testing.F) {
	for i := range opcodesInOrder() {
		f.Add(uint16(i), uint16(64), []byte{1, 0, 1, 0xff, 1})
	}
	all := opcodesInOrder()
	d := hostile(f)
	f.Fuzz(func(t *testing.T, which, outSize uint16, body []byte) {
		opcode := all[int(which)%len(all)]
		in := append(binary.BigEndian.AppendUint16(nil, opcode), body...)
		in = append(in, make([]byte, minBox)...)
		out := make([]byte, minBox+int(outSize))
		d.h.execute(in, out)
		d.h.Run()
		if opcode == 0x103 || opcode == 0x105 || opcode == 0x104 {
			d = hostile(t)
		}
	})
}

// Commands of likely nonsense, the same in every run: numbers small enough to
// be somebody's, flags and sizes at random.
func TestNonsense(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := opcodesInOrder()
	statuses := map[Status]int{}
	for range 20 {
		d := hostile(t)
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

// FuzzQueue gives the firmware entries of its queue, and mailboxes, as the
// fuzzer likes them.
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

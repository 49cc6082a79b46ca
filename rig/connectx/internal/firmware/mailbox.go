package firmware

import (
	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
	"github.com/goverbs/goverbs/rig/internal/bus"
)

const (
	inlineSize  = 16  // bytes of an in- or outbox in the command's entry
	blockSize   = 512 // in each mailbox
	mailboxSize = 576

	// minBox has opcode and op_mod, or status and syndrome.
	minBox = 8
	// maxBox is far more than any command needs. The largest inbox has the
	// translations of the largest registration.
	maxBox = 16 << 20
)

// gather reads an inbox of n bytes: those in the entry, and those in the chain of mailboxes
// at addr.
func gather(m bus.Memory, entry ifc.View, n int) ([]byte, uint8) {
	if n < minBox || n > maxBox {
		return nil, deliveryInLength
	}
	box := append(make([]byte, 0, n), entry.Bytes("command_input_inline_data")[:min(n, inlineSize)]...)
	next := entry.Get("input_mailbox_pointer_63_32")<<32 | entry.Get("input_mailbox_pointer_31_9")<<9
	status := chain(m, next, n-inlineSize, uint8(entry.Get("token")), deliveryInPointer, func(block []byte) {
		box = append(box, block...)
	})
	return box, status
}

// scatter writes an outbox.
func scatter(m bus.Memory, entry ifc.View, box []byte) uint8 {
	box = box[copy(entry.Bytes("command_output_inline_data"), box):]
	next := entry.Get("output_mailbox_pointer_63_32")<<32 | entry.Get("output_mailbox_pointer_31_9")<<9
	return chain(m, next, len(box), uint8(entry.Get("token")), deliveryOutPointer, func(block []byte) {
		copy(block, box)
		box = box[len(block):]
	})
}

// chain visits n bytes of a chain of mailboxes. The length bounds it, whatever
// the pointers say.
func chain(m bus.Memory, next uint64, n int, token, badPointer uint8, visit func(block []byte)) uint8 {
	for number := uint64(0); n > 0; number++ {
		memory := m.Bytes(next, mailboxSize)
		if memory == nil {
			return badPointer
		}
		box := ifc.On("cmd_if_box", memory)
		switch {
		case box.Get("token") != uint64(token):
			return deliveryToken
		case box.Get("block_number") != number:
			return deliveryBlock
		}
		size := min(n, blockSize)
		visit(memory[:size])
		n -= size
		next = box.Get("next_pointer_63_32")<<32 | box.Get("next_pointer_31_10")<<10
	}
	return deliveryOK
}

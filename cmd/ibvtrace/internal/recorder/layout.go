package recorder

// The shared memory: control, then slots, one record each. The assembly knows the
// structs and the constants of this file by go_asm.h.

const (
	slotShift = 11
	slotBytes = 1 << slotShift
	slots     = 4096
	slotMask  = slots - 1
	slotsAt   = 36864 // a multiple of the page's size that leaves room for control

	// Bytes is the size of the shared memory.
	Bytes = slotsAt + slots*slotBytes

	maxFDs = 1024

	headBytes = 24 // struct ib_uverbs_ioctl_hdr
	attrBytes = 16
	maxAttrs  = 24
	maxHead   = headBytes + maxAttrs*attrBytes
	inWord    = 8 // data of up to so many bytes is in the attribute itself

	objects      = 32
	methodsShift = 4
	methods      = 1 << methodsShift
	methodShift  = 5 // the size of a method

	// An attribute has a bit in a method's masks: the core's have the lower half, the
	// driver's the upper.
	attrsShift = 5
	attrs      = 1 << attrsShift
)

type control struct {
	next    uint32 // where the next free slot should be
	driver  uint32 // of the verbs that are recorded
	ended   uint64 // counts the records that were ended
	fds     [maxFDs / 32]uint32
	methods [objects * methods]method
	states  [slots]uint32 // of each slot: its phase, and the thread's id above that; 0: free
}

// A method says what is to be copied for one, by bits for attributes.
type method struct {
	known    uint64 // the attributes that may be there, 0: not to be recorded
	in       uint64 // those with data for the kernel
	out      uint64 // those with data from it
	commands uint64 // of INVOKE_WRITE: the commands that may be recorded; else 0
}

type slot struct {
	state  uint64 // where its state is
	order  uint64 // in which records were ended
	start  [2]int64
	end    [2]int64
	args   [6]uint64
	result int64
	call   uint32 // the number of the system call
	head   uint32 // bytes of the header and the attributes
	in     uint32 // bytes that the attributes point at
	want   uint32 // bytes to read after the call
	out    uint32 // bytes that were
	_      uint32
	local  [2]uint64               // struct iovec: where to copy to
	remote [maxAttrs + 1][2]uint64 // and from
	data   [dataBytes]byte
}

// dataBytes is for the header with the attributes, what goes in, the two again after the
// call, and what comes out.
const dataBytes = slotBytes - 144 - 16*(maxAttrs+1)

// The phases of a slot.
const (
	phaseTaken = iota + 1
	phaseCalling
	phaseEnded

	phaseShift = 2
	phaseMask  = 1<<phaseShift - 1
)

// The system calls' numbers on amd64.
const (
	callMmap            = 9
	callIoctl           = 16
	callGettid          = 186
	callClockGettime    = 228
	callProcessVMReadv  = 310
	verbsIoctl          = 0xc0181b01 // uapi.RDMA_VERBS_IOCTL
	mapShared           = 1
	mapSharedValidate   = 3
	mapTypeAndAnonymous = 0xf | 0x20
	writeCmd            = 2 // uapi.UVERBS_ATTR_WRITE_CMD
)

// Mark is in the upper half of ioctl's sixth argument and of mmap's fifth if the call is
// being recorded: the one has no sixth, the other's is an int.
const Mark = 0x7665_5272

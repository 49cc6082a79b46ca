package recorder

// The shared memory has control, then slots with one record each. The assembly uses the
// structs and constants of this file through go_asm.h.

const (
	slotShift = 11
	slotBytes = 1 << slotShift
	slots     = 4096
	slotMask  = slots - 1
	slotsAt   = 36864 // a multiple of the page size, behind control

	// Bytes is the size of the shared memory.
	Bytes = slotsAt + slots*slotBytes

	maxFDs = 1024

	headBytes = 24 // struct ib_uverbs_ioctl_hdr
	attrBytes = 16
	maxAttrs  = 24
	maxHead   = headBytes + maxAttrs*attrBytes
	inWord    = 8 // the attribute itself holds data of up to 8 bytes

	objects      = 32
	methodsShift = 4
	methods      = 1 << methodsShift
	methodShift  = 5 // log2 of the size of a method

	// Each attribute has a bit in a method's masks: attributes of the core in the lower
	// half, those of the driver in the upper half.
	attrsShift = 5
	attrs      = 1 << attrsShift
)

type control struct {
	next    uint32              // the slot to try next
	driver  uint32              // only its verbs are recorded
	ended   uint64              // number of finished records
	fds     [maxFDs / 32]uint32 // descriptors to be recorded
	methods [objects * methods]method
	states  [slots]uint32 // the phase of each slot, and above it the thread's ID; 0: free
}

// A method selects the data to copy for a method of the schema. Each attribute has a bit.
type method struct {
	known    uint64 // the attributes that may occur; 0: the method is not recorded
	in       uint64 // attributes with data for the kernel
	out      uint64 // attributes with data from the kernel
	commands uint64 // of INVOKE_WRITE: the commands that may be recorded; otherwise 0
}

type slot struct {
	state  uint64 // the address of the slot's state
	order  uint64 // the record's number in the order in which they finished
	start  [2]int64
	end    [2]int64
	args   [6]uint64
	result int64
	call   uint32 // the number of the system call
	head   uint32 // bytes of the header and the attributes
	in     uint32 // bytes of input data
	want   uint32 // bytes to read after the call
	out    uint32 // bytes read after the call
	_      uint32
	local  [2]uint64               // struct iovec: destination of the copy
	remote [maxAttrs + 1][2]uint64 // struct iovec: sources of the copy
	data   [dataBytes]byte
}

// dataBytes is the room for the header with the attributes and the input data, and after the
// call for the header with the attributes again and the output data.
const dataBytes = slotBytes - 144 - 16*(maxAttrs+1)

// The phases of a slot.
const (
	phaseTaken = iota + 1
	phaseCalling
	phaseEnded

	phaseShift = 2
	phaseMask  = 1<<phaseShift - 1
)

// System call numbers on amd64, and arguments.
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

// Mark is in the upper half of ioctl's sixth argument, or of mmap's fifth, if the call is being
// recorded. The kernel ignores both: ioctl has no sixth argument, and mmap's fifth is an int.
const Mark = 0x7665_5272

//go:build amd64 || arm64

package kernel

import "github.com/goverbs/goverbs/cmd/ibvtrace/internal/bpf"

// A Kind is what a record is about.
type Kind uint32

const (
	Ioctl Kind = iota + 1 // a verb
	Map
	Open    // of a device
	OpenCM  // of rdma_cm
	Release // of a file's last reference
	Command // to rdma_cm
	Channel // a read of a completion channel
	Async   // a read of asynchronous events
	Fork
	Exit // of a process
)

// A point is a function of the kernel where programs are attached.
type point struct {
	function string
	params   int
	waits    bool // it may wait for long, so its programs run in kprobes: see the package
	kind     Kind
	module   string
	enters   func(*program) // copies the inputs
	returns  func(*program) // copies the results; without it, the return is not watched
}

const (
	uverbs = "ib_uverbs"
	ucm    = "rdma_ucm"
)

// points lists the functions. The first parameter of each is the struct file, except of those
// that open and release, where it is the second.
var points = []point{
	{"ib_uverbs_open", 2, false, Open, uverbs, nil, nothing},
	{"ib_uverbs_close", 2, false, Release, uverbs, nil, nil},
	{"uverbs_uobject_fd_release", 2, false, Release, uverbs, nil, nil}, // of event files
	{"ib_uverbs_ioctl", 3, false, Ioctl, uverbs, (*program).ioctlInputs, (*program).ioctlResults},
	{"ib_uverbs_mmap", 2, false, Map, uverbs, (*program).mapping, nothing},
	{"ib_uverbs_comp_event_read", 4, true, Channel, uverbs, nil, (*program).event},
	{"ib_uverbs_async_event_read", 4, true, Async, uverbs, nil, (*program).event},
	{"ucma_open", 2, false, OpenCM, ucm, nil, nothing},
	{"ucma_close", 2, false, Release, ucm, nil, nil},
	{"ucma_write", 4, true, Command, ucm, (*program).command, (*program).response},
}

// nothing copies nothing.
func nothing(*program) {}

// fields are the fields in the kernel whose offsets programs need.
var fields = []string{
	"file.f_inode", "inode.i_rdev", "vm_area_struct.vm_start",
	"task_struct.tgid", "task_struct.exit_code", "task_struct.signal", "signal_struct.live",
}

// Sizes of ib_uverbs_ioctl_hdr, ib_uverbs_attr, rdma_ucm_cmd_hdr, and where their fields are.
const (
	headerBytes   = 24
	headerAttrs   = 6
	attrBytes     = 16
	attrLen       = 2
	attrData      = 8
	inWord        = 8         // inputs of up to 8 bytes are in the attribute
	lowest        = 1<<16 - 1 // nothing is mapped here: small inputs are not addresses, and trying takes long
	commandHeader = 8
	commandOut    = 6
)

// maxAttrs is more than the attributes of any verb. The kernel allows a page of them.
const maxAttrs = 32

// At the entry, a record begins with the header and the attributes, as two pieces.
const (
	headerAt = recordBytes + pieceBytes
	attrsAt  = headerAt + headerBytes + pieceBytes
)

// ioctlInputs copies the header, the attributes and the inputs that are not in them.
func (p *program) ioctlInputs() {
	p.parameter(bpf.R8, 2)
	p.ioctl(inWord)
}

// ioctlResults copies the header, the attributes and all their data, if the verb succeeded.
func (p *program) ioctlResults() {
	p.parameter(bpf.R8, 2)
	p.ioctl(0)
}

// ioctl copies the ioctl's memory at R8, with the data of attributes that is longer than this.
func (p *program) ioctl(longer int32) {
	const slot = -8 // on the stack: the number of attributes
	done := p.NewLabel()
	p.Store(bpf.DW, record, parametersAt+8, bpf.R8)
	p.DoImm(bpf.Mov, bpf.R9, headerBytes)
	p.piece()
	p.Load(bpf.W, bpf.R1, record, recordBytes+pieceGot)
	p.IfImm(bpf.Ne, bpf.R1, headerBytes, done)
	p.Load(bpf.H, bpf.R9, record, headerAt+headerAttrs)
	few := p.NewLabel()
	p.IfImm(bpf.Le, bpf.R9, maxAttrs, few)
	p.cut()
	p.DoImm(bpf.Mov, bpf.R9, maxAttrs)
	p.Label(few)
	p.Store(bpf.DW, bpf.FP, slot, bpf.R9)
	p.DoImm(bpf.Lsh, bpf.R9, 4) // attrBytes each
	p.Load(bpf.DW, bpf.R8, record, parametersAt+8)
	p.DoImm(bpf.Add, bpf.R8, headerBytes)
	p.piece()
	p.Load(bpf.W, bpf.R1, record, headerAt+headerBytes+pieceGot)
	p.Load(bpf.W, bpf.R2, record, headerAt+headerBytes+pieceAsked)
	p.If(bpf.Ne, bpf.R1, bpf.R2, done)
	for i := range maxAttrs {
		next := p.NewLabel()
		at := attrsAt + attrBytes*i
		p.Load(bpf.DW, bpf.R1, bpf.FP, slot)
		p.IfImm(bpf.Le, bpf.R1, int32(i), done)
		p.Load(bpf.H, bpf.R9, record, at+attrLen)
		p.IfImm(bpf.Le, bpf.R9, longer, next)
		p.Load(bpf.DW, bpf.R8, record, at+attrData)
		p.IfImm(bpf.Le, bpf.R8, lowest, next)
		p.piece()
		p.Label(next)
	}
	p.Label(done)
}

// mapping notes where the mapping is.
func (p *program) mapping() {
	p.parameter(bpf.R3, 1)
	p.DoImm(bpf.Add, bpf.R3, int32(p.offsets["vm_area_struct.vm_start"]))
	p.kernelTo(record, resultAt, 8)
}

// command copies a command.
func (p *program) command() {
	p.parameter(bpf.R8, 1)
	p.parameter(bpf.R9, 2)
	p.piece()
}

// response copies what a command has written. Its address is the command's first word, and in
// that which makes an ID the second.
func (p *program) response() {
	const most = commandHeader + 16
	done, short, other := p.NewLabel(), p.NewLabel(), p.NewLabel()
	p.parameter(bpf.R8, 1)
	p.parameter(bpf.R9, 2)
	p.IfImm(bpf.Le, bpf.R9, most, short)
	p.DoImm(bpf.Mov, bpf.R9, most)
	p.Label(short)
	p.piece()
	p.Load(bpf.W, bpf.R1, record, recordBytes+pieceGot)
	p.IfImm(bpf.Le, bpf.R1, commandHeader+7, done)
	p.Load(bpf.DW, bpf.R8, record, headerAt+commandHeader)
	p.Load(bpf.W, bpf.R2, record, headerAt)
	p.IfImm(bpf.Ne, bpf.R2, 0, other) // RDMA_USER_CM_CMD_CREATE_ID
	p.IfImm(bpf.Le, bpf.R1, most-1, done)
	p.Load(bpf.DW, bpf.R8, record, headerAt+commandHeader+8)
	p.Label(other)
	p.Load(bpf.H, bpf.R9, record, headerAt+commandOut)
	p.piece()
	p.Label(done)
}

// event copies the events that were read.
func (p *program) event() {
	p.parameter(bpf.R8, 1)
	p.Load(bpf.DW, bpf.R9, record, resultAt)
	p.piece()
}

//go:build amd64 || arm64

package kernel

import (
	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/bpf"
	"github.com/goverbs/goverbs/uapi"
)

// Registers that keep their meaning in a program. R8 and R9 are an address and a length.
const (
	ctx    = bpf.R6 // what the kernel passes: registers, or a tracepoint's arguments
	record = bpf.R7 // the buffer with the record
)

// out is the label of a program's end.
const out = "out"

// A source is what programs are assembled from.
type source struct {
	all    bool    // processes are watched from their first call on
	self   int     // but this one never
	cgroup *cgroup // if they are in it or below it; nil: all

	offsets map[string]int // of fields

	processes int // the descriptor of memory with a byte for each process ID: 1 if it is watched
	buffers   int // of a map with a record for each processor
	lost      int // of memory with a counter
	ring      int
}

// A program is one that is being assembled.
type program struct {
	bpf.Asm
	*source
	point      *point // nil: of a tracepoint
	returns    bool
	trampoline bool // it runs in a trampoline, not in a kprobe
}

// parameter loads a parameter of the function. When the function returns, a kprobe no longer has them,
// and they are the arguments of the system call.
func (p *program) parameter(dst bpf.Reg, i int) {
	switch {
	case p.trampoline:
		p.Load(bpf.DW, dst, ctx, 8*i)
	case p.returns:
		p.Load(bpf.DW, dst, record, regsAt+userArgs[i])
	default:
		p.Load(bpf.DW, dst, ctx, parameter(i))
	}
}

// result loads the function's result.
func (p *program) result(dst bpf.Reg) {
	if p.trampoline {
		p.Load(bpf.DW, dst, ctx, 8*p.point.params)
	} else {
		p.Load(bpf.DW, dst, ctx, result)
	}
}

// Places on the stack. Those below -64 are for records.
const (
	keyAt  = -16 // of a map
	wordAt = -24
	stack  = -64
)

// enters returns the program that runs when the kernel enters a point's function, in a trampoline or
// in a kprobe.
func (s *source) enters(x *point, trampoline bool) *bpf.Asm {
	p := &program{source: s, point: x, trampoline: trampoline}
	p.Do(bpf.Mov, ctx, bpf.R1)
	if x.kind == Ioctl {
		p.parameter(bpf.R1, 1)
		p.If32(bpf.Ne, bpf.R1, uapi.RDMA_VERBS_IOCTL, out)
	}
	if x.kind != Release { // else the address of a file that others close would stay known
		p.filter(true)
	}
	p.begin(x.kind, 0)
	p.Do(bpf.Mov, bpf.R1, record)
	p.DoImm(bpf.Add, bpf.R1, commAt)
	p.DoImm(bpf.Mov, bpf.R2, commBytes)
	p.Call(bpf.Comm)
	p.userRegs()
	file := 0
	if x.kind == Open || x.kind == OpenCM || x.kind == Release {
		file = 1
	}
	p.parameter(bpf.R8, file)
	p.Store(bpf.DW, record, fileAt, bpf.R8)
	p.device()
	for i := range 2 {
		if 1+i == x.params {
			break
		}
		p.parameter(bpf.R1, 1+i)
		p.Store(bpf.DW, record, parametersAt+8*i, bpf.R1)
	}
	if x.enters != nil {
		x.enters(p)
	}
	p.end()
	return &p.Asm
}

// returned returns the program that runs when a point's function returns.
func (s *source) returned(x *point, trampoline bool) *bpf.Asm {
	p := &program{source: s, point: x, returns: true, trampoline: trampoline}
	p.Do(bpf.Mov, ctx, bpf.R1)
	p.filter(false)
	p.begin(x.kind, flagReturn)
	if !trampoline {
		p.userRegs()
	}
	if x.kind == Ioctl {
		p.parameter(bpf.R1, 1)
		p.If32(bpf.Ne, bpf.R1, uapi.RDMA_VERBS_IOCTL, out)
	}
	p.result(bpf.R8)
	p.Store(bpf.DW, record, resultAt, bpf.R8)
	failed := p.NewLabel()
	p.IfImm(bpf.SLt, bpf.R8, 0, failed)
	x.returns(p)
	p.Label(failed)
	p.end()
	return &p.Asm
}

// filter ends the program unless the process is watched. With add, it may begin to be.
func (p *program) filter(add bool) {
	known := p.NewLabel()
	p.Call(bpf.PIDTGID)
	p.DoImm(bpf.Rsh, bpf.R0, 32)
	if p.all {
		p.IfImm(bpf.Eq, bpf.R0, int32(p.self), out)
	}
	if g := p.cgroup; g != nil {
		p.Do(bpf.Mov, bpf.R8, bpf.R0)
		p.DoImm(bpf.Mov, bpf.R1, int32(g.level))
		p.Call(bpf.AncestorCgroupID)
		p.Const(bpf.R1, g.id)
		p.If(bpf.Ne, bpf.R0, bpf.R1, out)
		p.Do(bpf.Mov, bpf.R0, bpf.R8)
	}
	p.process(bpf.R1, bpf.R0)
	p.Load(bpf.B, bpf.R2, bpf.R1, 0)
	if !p.all || !add {
		p.IfImm(bpf.Eq, bpf.R2, 0, out)
		return
	}
	p.IfImm(bpf.Ne, bpf.R2, 0, known)
	p.StoreImm(bpf.B, bpf.R1, 0, 1)
	p.Label(known)
}

// process sets dst to the address of the byte of a process, and ends the program if there is none.
func (p *program) process(dst, id bpf.Reg) {
	p.IfImm(bpf.Gt, id, pids-1, out)
	p.Value(dst, p.processes)
	p.Do(bpf.Add, dst, id)
}

// countLost counts something that will not be reported.
func (p *program) countLost() {
	p.Value(bpf.R0, p.lost)
	p.DoImm(bpf.Mov, bpf.R1, 1)
	p.AtomicAdd(bpf.R0, 0, bpf.R1)
}

// begin begins a record in the processor's buffer.
func (p *program) begin(kind Kind, flags int32) {
	p.StoreImm(bpf.W, bpf.FP, keyAt, 0)
	p.Map(bpf.R1, p.buffers)
	p.Do(bpf.Mov, bpf.R2, bpf.FP)
	p.DoImm(bpf.Add, bpf.R2, keyAt)
	p.Call(bpf.MapLookup)
	p.IfImm(bpf.Eq, bpf.R0, 0, out)
	p.Do(bpf.Mov, record, bpf.R0)
	p.head(kind, flags, 0)
}

// userRegs copies the registers of the system call.
func (p *program) userRegs() {
	p.Call(bpf.Task)
	p.Do(bpf.Mov, bpf.R1, bpf.R0)
	p.Call(bpf.UserRegs)
	at := regsAt
	for _, part := range userRegs {
		for i := 0; i < part.bytes; i += 8 {
			size := bpf.DW
			if part.bytes-i == 4 {
				size = bpf.W
			}
			p.Load(size, bpf.R1, bpf.R0, part.at+i)
			p.Store(size, record, at+i, bpf.R1)
		}
		at += part.bytes
	}
}

// device copies the device's number of the file at R8. In a trampoline, the verifier knows the type of a
// parameter, and programs may read structs without help.
func (p *program) device() {
	if p.trampoline {
		p.Load(bpf.DW, bpf.R1, bpf.R8, p.offsets["file.f_inode"])
		p.Load(bpf.W, bpf.R1, bpf.R1, p.offsets["inode.i_rdev"])
		p.Store(bpf.W, record, deviceAt, bpf.R1)
		return
	}
	p.Do(bpf.Mov, bpf.R3, bpf.R8)
	p.DoImm(bpf.Add, bpf.R3, int32(p.offsets["file.f_inode"]))
	p.kernelTo(bpf.FP, wordAt, 8)
	p.Load(bpf.DW, bpf.R3, bpf.FP, wordAt)
	p.DoImm(bpf.Add, bpf.R3, int32(p.offsets["inode.i_rdev"]))
	p.kernelTo(record, deviceAt, 4)
}

// head writes the parts that all records have to record+off.
func (p *program) head(kind Kind, flags int32, off int) {
	p.StoreImm(bpf.W, record, off+kindAt, int32(kind))
	p.StoreImm(bpf.W, record, off+usedAt, 0)
	p.StoreImm(bpf.W, record, off+flagsAt, flags)
	p.StoreImm(bpf.DW, record, off+resultAt, 0)
	p.Call(bpf.Now)
	p.Store(bpf.DW, record, off+timeAt, bpf.R0)
	p.Call(bpf.PIDTGID)
	p.Store(bpf.DW, record, off+threadAt, bpf.R0)
}

// kernelTo copies from R3, an address of the kernel, to dst+off. If that fails, it writes zeros.
func (p *program) kernelTo(dst bpf.Reg, off, n int) {
	p.Do(bpf.Mov, bpf.R1, dst)
	p.DoImm(bpf.Add, bpf.R1, int32(off))
	p.DoImm(bpf.Mov, bpf.R2, int32(n))
	p.Call(bpf.ReadKernel)
}

// piece appends R9 bytes of the program's memory at R8.
func (p *program) piece() {
	fits, short, read, done := p.NewLabel(), p.NewLabel(), p.NewLabel(), p.NewLabel()
	p.Load(bpf.W, bpf.R1, record, usedAt)
	p.IfImm(bpf.Le, bpf.R1, maxUsed, fits)
	p.cut()
	p.Goto(done)
	p.Label(fits)
	p.Do(bpf.Mov, bpf.R2, record)
	p.Do(bpf.Add, bpf.R2, bpf.R1)
	p.Store(bpf.DW, bpf.R2, recordBytes, bpf.R8)
	p.Store(bpf.W, bpf.R2, recordBytes+pieceAsked, bpf.R9)
	p.IfImm(bpf.Le, bpf.R9, maxPiece, short)
	p.DoImm(bpf.Mov, bpf.R9, maxPiece)
	p.Label(short)
	p.Store(bpf.W, bpf.R2, recordBytes+pieceGot, bpf.R9)
	p.Do(bpf.Mov, bpf.R1, bpf.R2)
	p.DoImm(bpf.Add, bpf.R1, recordBytes+pieceBytes)
	p.Do(bpf.Mov, bpf.R2, bpf.R9)
	p.Do(bpf.Mov, bpf.R3, bpf.R8)
	p.Call(bpf.ReadUser)
	p.Load(bpf.W, bpf.R1, record, usedAt)
	p.IfImm(bpf.Gt, bpf.R1, maxUsed, done) // never, but the verifier doesn't know
	p.IfImm(bpf.Eq, bpf.R0, 0, read)
	p.Do(bpf.Mov, bpf.R2, record)
	p.Do(bpf.Add, bpf.R2, bpf.R1)
	p.DoImm(bpf.Mov, bpf.R9, 0)
	p.Store(bpf.W, bpf.R2, recordBytes+pieceGot, bpf.R9)
	p.Label(read)
	p.Do(bpf.Add, bpf.R1, bpf.R9)
	p.DoImm(bpf.Add, bpf.R1, pieceBytes+7)
	p.DoImm(bpf.And, bpf.R1, ^7)
	p.Store(bpf.W, record, usedAt, bpf.R1)
	p.Label(done)
}

// cut marks the record as incomplete.
func (p *program) cut() {
	p.Load(bpf.W, bpf.R1, record, flagsAt)
	p.DoImm(bpf.Or, bpf.R1, flagCut)
	p.Store(bpf.W, record, flagsAt, bpf.R1)
}

// end reports the record and ends the program.
func (p *program) end() {
	p.Load(bpf.W, bpf.R3, record, usedAt)
	p.IfImm(bpf.Gt, bpf.R3, dataBytes, out) // never
	p.DoImm(bpf.Add, bpf.R3, recordBytes)
	p.Do(bpf.Mov, bpf.R2, record)
	p.report()
}

// report reports the record of R3 bytes at R2, and ends the program.
func (p *program) report() {
	p.Map(bpf.R1, p.ring)
	p.DoImm(bpf.Mov, bpf.R4, 0)
	p.Call(bpf.RingOutput)
	p.IfImm(bpf.Eq, bpf.R0, 0, out)
	p.countLost()
	p.Label(out)
	p.DoImm(bpf.Mov, bpf.R0, 0)
	p.Exit()
}

// small composes a record without data on the stack, and reports it.
func (p *program) small(kind Kind, result int) {
	const at = stack - recordBytes
	for i := 0; i < recordBytes; i += 8 {
		p.StoreImm(bpf.DW, bpf.FP, at+i, 0)
	}
	p.Do(bpf.Mov, record, bpf.FP)
	p.head(kind, 0, at)
	p.Load(bpf.W, bpf.R1, bpf.FP, result)
	p.Store(bpf.DW, bpf.FP, at+resultAt, bpf.R1)
	p.DoImm(bpf.Mov, bpf.R3, recordBytes)
	p.Do(bpf.Mov, bpf.R2, bpf.FP)
	p.DoImm(bpf.Add, bpf.R2, at)
	p.report()
}

// forks returns the program of the tracepoint sched_process_fork, whose arguments are the
// parent's and the child's task_struct. It watches the children of processes that are watched.
func (s *source) forks() *bpf.Asm {
	p := &program{source: s}
	p.Do(bpf.Mov, ctx, bpf.R1)
	p.ownProcess()
	p.Do(bpf.Mov, bpf.R9, bpf.R8) // the parent's ID
	p.Load(bpf.DW, bpf.R3, ctx, 8)
	p.DoImm(bpf.Add, bpf.R3, int32(s.offsets["task_struct.tgid"]))
	p.StoreImm(bpf.DW, bpf.FP, wordAt, 0)
	p.kernelTo(bpf.FP, wordAt, 4)
	p.Load(bpf.W, bpf.R1, bpf.FP, wordAt)
	p.If(bpf.Eq, bpf.R1, bpf.R9, out) // a thread
	p.process(bpf.R2, bpf.R1)
	p.StoreImm(bpf.B, bpf.R2, 0, 1)
	p.small(Fork, wordAt)
	return &p.Asm
}

// exits returns the program of the tracepoint sched_process_exit, whose argument is the
// task_struct of the thread that ends. It reports the last thread of a process.
func (s *source) exits() *bpf.Asm {
	p := &program{source: s}
	p.Do(bpf.Mov, ctx, bpf.R1)
	p.ownProcess()
	p.Load(bpf.DW, bpf.R9, ctx, 0)
	p.Do(bpf.Mov, bpf.R3, bpf.R9)
	p.DoImm(bpf.Add, bpf.R3, int32(s.offsets["task_struct.signal"]))
	p.StoreImm(bpf.DW, bpf.FP, wordAt, 0)
	p.kernelTo(bpf.FP, wordAt, 8)
	p.Load(bpf.DW, bpf.R3, bpf.FP, wordAt)
	p.DoImm(bpf.Add, bpf.R3, int32(s.offsets["signal_struct.live"]))
	p.StoreImm(bpf.DW, bpf.FP, wordAt, 0)
	p.kernelTo(bpf.FP, wordAt, 4)
	p.Load(bpf.W, bpf.R1, bpf.FP, wordAt)
	p.IfImm(bpf.Ne, bpf.R1, 0, out)
	p.Do(bpf.Mov, bpf.R3, bpf.R9)
	p.DoImm(bpf.Add, bpf.R3, int32(s.offsets["task_struct.exit_code"]))
	p.kernelTo(bpf.FP, wordAt, 4)
	p.process(bpf.R1, bpf.R8)
	p.StoreImm(bpf.B, bpf.R1, 0, 0)
	p.small(Exit, wordAt)
	return &p.Asm
}

// ownProcess sets R8 to the ID of the running process, and ends the program unless it is watched.
func (p *program) ownProcess() {
	p.Call(bpf.PIDTGID)
	p.Do(bpf.Mov, bpf.R8, bpf.R0)
	p.DoImm(bpf.Rsh, bpf.R8, 32)
	p.process(bpf.R1, bpf.R8)
	p.Load(bpf.B, bpf.R1, bpf.R1, 0)
	p.IfImm(bpf.Eq, bpf.R1, 0, out)
}

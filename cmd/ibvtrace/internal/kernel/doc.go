// Package kernel sees the system calls of RDMA programs in the kernel, by BPF programs. The
// traced program is not stopped, not ptraced and not changed.
//
// # What is attached
//
// The programs run when the kernel enters and leaves its own functions for uverbs and rdma_cm:
// ib_uverbs_ioctl, ib_uverbs_mmap, ucma_write and so on, see points. They are in the files'
// struct file_operations, so they are never inlined, and they have had these names and
// parameters since Linux 4.19. A program that makes no system call on an RDMA file pays
// nothing. The tracepoints of all system calls (sys_enter, sys_exit) would make each system
// call on the machine slower.
//
// They run in BPF trampolines (fentry, fexit) where these can be had, as they cost least. That takes a
// processor for which the kernel has them, which are amd64 and, since 6.4, arm64, and type information
// of the modules, which the kernel shows to CAP_SYS_ADMIN. Elsewhere the programs run in kprobes,
// through perf_event_open(2), which amd64 and arm64 have in all kernels since 4.17. Both go with their
// descriptors when this process dies. Kprobes that tracefs makes stay.
//
// When a trampoline changes, as another program is attached to its function or detached from it, by
// anybody, the returns of calls that are running are not seen. So the functions that wait, for events
// and for commands to rdma_cm, have kprobes in any case. A kprobe at a function's return has room for a
// limited number of threads in that function: twice the processors, at least ten. If more threads wait
// in rdma_get_cm_event, the returns of some are not seen. [Watcher] reports such a call when its thread
// makes the next one or ends.
//
// # What is not seen
//
// Verbs by write(2), the interface before the ioctl, which rdma-core uses on kernels before
// 4.20 only. Their function is that of rxe's doorbell too, and a kprobe there would be paid at
// each post. Opens that fail before the driver is asked. Of commands to rdma_cm by writev or
// io_uring, and of 32-bit programs' system calls, the results. Posts and polls, which are no
// system calls.
//
// # Reading the program's memory
//
// Inputs are copied at the entry, results at the return, with bpf_probe_read_user. That does
// not fault pages in: what was never touched or is swapped out can't be read, and is shown as
// such. A header says how many attributes follow it, and an attribute where its data is. The
// program in the kernel has no schema: at the entry it copies the data of all attributes that
// are too long to be in the attribute itself, at a successful return that of all, as the
// attributes then are. So new verbs need no new program, and nothing that the traced program
// writes in between can make the lengths of one copy those of another. Small inputs are not taken for
// addresses: a page fault for each would take most of a program's time. The decoder, which asks
// for addresses and lengths, gets only what was copied, see [Record.Read].
//
// Attributes have a fixed number of places, unrolled into straight code: the verifier of every
// kernel accepts it, whatever it thinks of loops, and looks at each instruction about once,
// because all that varies (the length so far) is in memory, which it doesn't follow. A record
// is composed in a buffer of the processor's, whose length bounds what is copied. What has no
// room is left out, and the record says that it was cut.
//
// # Whose calls
//
// A byte for each process ID says whether the process is watched: looking at it takes the fewest
// instructions, which processes that are not watched pay too. It is in memory that this process shares
// with the programs. The tracepoint sched_process_fork adds the children of those that are watched
// before they run, sched_process_exit removes who ends. An exec changes nothing. Alternatively, all
// processes are watched, or those in a cgroup and the cgroups below it. Process IDs are those of the
// initial PID namespace.
//
// Files are told apart by the address of struct file. A descriptor would not do: when a record
// is read, it may be closed, and its number that of another file. The device is that of the
// inode. The descriptor, which is shown, is an argument of the system call, found with
// bpf_task_pt_regs. At its return, a kprobe no longer has a function's parameters, and finds the memory by
// the arguments of the system call.
//
// The offsets of the few fields that are read come from /sys/kernel/btf/vmlinux, as Debian,
// Ubuntu, Fedora and so on have it. Without it, this package can't be used: for another way to
// find the offsets, one would have to trust the kernel's source to be the distribution's.
//
// # Losses
//
// Records go through one BPF_MAP_TYPE_RINGBUF, which keeps the order of all processors, and
// wakes this process only if it has read everything. When the ring is full, a record is lost
// and counted, see [Watcher.Lost]. One thing is not counted: on kernels with full preemption,
// kprobes don't run their programs on a processor where another BPF program, or a system call on a
// map, has been preempted.
package kernel

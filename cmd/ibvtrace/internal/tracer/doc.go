// Package tracer traces the RDMA verbs of programs: every verb that the kernel executes for
// them, mappings of devices, the connection manager's commands and events, and on request
// the data verbs, which post and poll.
//
// # Mechanisms
//
// A tracer waits for stops and passes them to four mechanisms. Each has a package, which
// imports none of the others:
//
//	stops       selects the system calls that stop, by seccomp filters
//	attach      attaches to running processes
//	probes      posts and polls of C programs: code inserted before functions
//	goprograms  posts and polls of Go programs, which report them on request
//
// The mechanisms share the packages below them. Package calls decodes system calls. Package
// tracee has threads, processes, files, objects and calls. Packages ptrace and seccomp wrap
// the kernel's interfaces. README.md in the parent folder has a diagram.
//
// A mechanism that needs another declares an interface, which the tracer implements: how
// calls reports verbs, what stops needs to know of inserted code, and what attach needs of the
// loop. See mechanisms_linux.go.
//
// # How programs are stopped
//
// A command that [Run] starts gets seccomp filters. They select the system calls that stop by
// their arguments, so that nothing else is slowed down. The command installs the first filter
// before it begins, and one more for each descriptor of an RDMA file. rxe's doorbell, which is
// a write to such a descriptor, does not stop. recvmsg, recvmmsg and pidfd_getfd stop, because a
// descriptor of an RDMA file may arrive from another process.
//
// A traced call stops twice, before and after it, because its results exist only then.
// Nearly all of its cost is four context switches between program and tracer. The output is
// produced while the program continues.
//
// Where BPF can be had, [Run] therefore sees the calls in the kernel, see package kernel, and none of
// this happens.
//
// A process that is attached to stops at every system call, because filters cannot be
// removed. So do a process that cannot install filters and, on request, a command. When the
// tracer detaches or is killed, a process that has no filter continues.
//
// A program may have seccomp filters of its own, which may kill it for system calls that it
// does not make itself. ibvtrace injects only system calls that the filters allow. If they do
// not, the program stops at every system call, and it gets no probes.
//
// # Data verbs
//
// In C programs, data verbs are functions in tables of pointers. The pointers are replaced
// by those of probes in the program's memory. This works on amd64, with libibverbs, shared
// or static, of any version that uses the ioctl. Go programs that use package verbs report
// data verbs on request. Polls that find nothing are only counted.
//
// # Untrusted programs
//
// No data from a program is trusted. Lengths are bounded, and memory that cannot be read is shown
// as such. The memory used for a program is bounded by the kernel's resources for it. If the code
// that decodes and shows calls panics, the programs continue: see the method Guard of tracee.Set.
// Control verbs of 32-bit programs are traced, and so are children created with CLONE_UNTRACED.
// System calls through io_uring are not traced.
//
// Run uses ptrace, and so is bound to one thread of this process. A process can call it once.
// It waits for all children of the process.
package tracer

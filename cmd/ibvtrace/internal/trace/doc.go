// Package trace follows programs and tells what they do with RDMA: every verb that
// the kernel runs for them, what they map of devices, the connection manager's
// commands and events, and if asked for, the verbs that post and poll.
//
// # Mechanisms
//
// A tracer waits for stops and hands them to five mechanisms. Each has a package, which
// imports none of the others:
//
//	stops       which system calls stop: seccomp filters
//	attach      processes that run already
//	probes      posts and polls of C programs: code put in front of their functions
//	goprograms  posts and polls of Go programs, which tell of them when asked
//	recording   verbs of C programs that do not stop: a recorder put into them
//
// What the mechanisms share lies below them: package calls decodes system calls, package
// tracee has threads, processes, files, objects and calls, packages ptrace and seccomp
// have the kernel's interfaces. README.md in the folder above draws them.
//
// A mechanism that needs another one asks for it by an interface of its own, which the
// tracer has: what calls say of verbs, what stops ask of the code that was put into
// programs, and what attach asks of the loop. See mechanisms_linux.go.
//
// # How programs are stopped
//
// A command that [Run] starts gets seccomp filters, which choose by their arguments
// the system calls that stop: nothing else of it is slowed down. It takes the first
// filter before it begins, and one more for each descriptor that turns out to be
// RDMA's. rxe's doorbell, which is a write to such a descriptor, does not stop.
//
// A call that stops does so twice, before and after it, since what it gives is there
// only then. Nearly all that a call costs its program is the kernel's way to the
// tracer and back, four times; what is shown of it is made while the program runs on.
//
// Therefore the verbs of a command that calls the kernel through a C library are recorded
// in its own memory, on amd64, from the end of the first on, and do not stop.
//
// A process that is attached to stops at every system call, because filters cannot
// be taken back; so does one that refuses filters. When the tracer goes, by itself
// or by SIGKILL, such a process runs on.
//
// A program may have seccomp filters of its own, which kill it for what it does not call
// itself. Nothing is called in its place that they do not let pass: it then stops at
// every system call, nothing of it is recorded, and no probes are put into it.
//
// # Verbs that post and poll
//
// In C programs they are functions in tables of pointers; the tables are made to lead
// through probes in memory of the program. It needs libibverbs, shared or static, of any
// version that has the ioctl, on amd64. Go programs on package verbs are asked to tell.
// Empty polls only count.
//
// # What programs may do
//
// Nothing that a program says is trusted: lengths are bounded, memory that cannot
// be read is shown as such, and what is kept of a program is bounded by what the
// kernel holds for it. A 32-bit program's control verbs are traced, and so are children
// that are to be no tracer's (CLONE_UNTRACED). What a program does by io_uring is not
// seen, nor what it says is being recorded and is not.
//
// Run uses ptrace and so belongs to one thread of this process at a time; a process
// can run it once. It takes over all children of the process.
package trace

// Package seccomp has the filters of seccomp(2): it builds them, reads those of other
// programs, and says what they decide. Package stops decides what is done about them.
// Package seccomp also knows the system calls that ibvtrace looks at, by their numbers on
// each ABI of this machine.
package seccomp

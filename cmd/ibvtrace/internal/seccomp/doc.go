// Package seccomp builds filters of seccomp(2), reads those of other programs, and
// interprets them. Package stops uses the results. Package seccomp also lists the system
// calls that ibvtrace handles, by their numbers on each ABI of this machine.
package seccomp

// Package calls decodes system calls: verbs by ioctl and by write(2), commands of the connection
// manager, reads of events, and opens and mappings of files. It also decodes structs of work
// requests and completions that C and Go programs share.
//
// A system call is decoded in two steps. An Enter function makes a call from its arguments. The
// call's Finish adds its results. Both work the same for a stopped thread and for a call
// that package kernel has seen.
package calls

// Package calls decodes what threads do: verbs by ioctl and by write(2), commands of the
// connection manager, events that are read, files that are opened and mapped. It also
// decodes the work requests and completions that C and Go programs have alike.
//
// A system call is looked at twice. An Enter function makes a call of its arguments, and the
// call's Finish adds what is there when it has returned. It does not matter to either
// whether the thread stops there, or whether the system call was recorded and is long over.
package calls

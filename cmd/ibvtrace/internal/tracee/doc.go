// Package tracee has what is known of the programs that are traced: their threads,
// processes, open files and objects, and the calls that they have made. The mechanisms
// share a [Set] of them. It makes events of calls, but decodes none itself.
//
// One goroutine at a time uses a Set and all that is in it.
package tracee

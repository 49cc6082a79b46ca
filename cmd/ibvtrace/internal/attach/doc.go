// Package attach begins to trace processes that run, with all their threads and with the
// files and objects that they have.
package attach

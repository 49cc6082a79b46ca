// Package attach attaches to running processes, with all their threads, open files and
// objects.
package attach

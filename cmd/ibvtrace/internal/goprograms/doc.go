// Package goprograms traces the data verbs of programs that use package verbs. Such programs
// have no tables of pointers. They report posts and polls themselves, on request. Package
// tracing is the contract.
package goprograms

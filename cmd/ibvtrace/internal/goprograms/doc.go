// Package goprograms traces the verbs of programs on package verbs that post and poll. Such
// programs have no tables of pointers. They tell of their posts and polls themselves when
// they are asked to; package tracing has the contract.
package goprograms

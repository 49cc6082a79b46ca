//go:build !linux

package selftest

var hostKinds []kind

package valkeyrdma

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Options are the sizes of a connection's buffers. The zero value of a field stands for its default.
type Options struct {
	// SendBuffer is the size in bytes of the memory that Write copies to, 4 KiB to 256 MiB. It is 128 KiB if it is 0.
	SendBuffer int

	// RecvBuffer is the size in bytes of the memory that the peer writes to, 8 KiB to 256 MiB. It is 1 MiB if it is 0,
	// as a Valkey server's. It is rounded up to a multiple of 8 KiB. One half of it at a time is registered with the
	// peer, and a Valkey server has a buffer of the size of a half for the connection.
	RecvBuffer int

	// KeepAlive is the interval of probes, which only the peer's device answers. They detect the loss of the peer while
	// there is nothing to send. It is 15 s if it is 0, as in package net. If it is negative, there are no probes.
	KeepAlive time.Duration

	// Spin is how often a call polls before it sleeps, 400 times if it is 0, which takes about 10 µs. After calls that
	// have polled in vain, up to 15 calls don't poll. A call sleeps at once if Spin is negative, or if it is 0 and Go
	// uses one processor (GOMAXPROCS).
	Spin int
}

const (
	sendQueue = 512 // messages with data on the way to the peer
	inline    = 64  // the largest message that is not copied to the send buffer

	// The send queue has slots for commands, and for a probe and the end.
	commands = 4
	reserved = 2
)

// complete checks the options, and fills in the defaults.
func (o Options) complete(limits *verbs.DeviceAttr) (Options, error) {
	for _, f := range []struct {
		name  string
		value *int
		def   int
		min   int
	}{
		{"SendBuffer", &o.SendBuffer, 128 << 10, 4 << 10},
		{"RecvBuffer", &o.RecvBuffer, 1 << 20, 8 << 10},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < f.min || *f.value > 1<<28 {
			return o, fmt.Errorf("%w: %s %d is not in %d to %d", verbs.ErrInvalid, f.name, *f.value, f.min, 1<<28)
		}
	}
	if limits.MaxQPWR < receives || limits.MaxQPWR < sendQueue+commands+reserved {
		return o, fmt.Errorf("%w: the device's queues have %d places, and the wire needs %d", errors.ErrUnsupported, limits.MaxQPWR, receives)
	}
	o.RecvBuffer = (o.RecvBuffer + 8<<10 - 1) &^ (8<<10 - 1)
	if o.KeepAlive == 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.Spin == 0 && runtime.GOMAXPROCS(0) > 1 {
		o.Spin = 400
	}
	return o, nil
}

package rsocket

import (
	"fmt"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Options are the sizes of a connection's buffers and queues. The zero value of a field stands
// for librdmacm's default.
type Options struct {
	// SendBuffer and RecvBuffer are the sizes in bytes of the memory that Write copies to,
	// and of the memory that the peer writes to. 0 stands for 128 KiB. Each is rounded up to
	// a multiple of 8 KiB.
	SendBuffer, RecvBuffer int

	// SendQueue and RecvQueue are the maximum numbers of messages on the way to the peer, and
	// from it. 0 stands for 384. The device's limits bound them.
	SendQueue, RecvQueue int

	// Mappings is how many pieces of memory the peer may map, for WriteAt, 0 to 128.
	Mappings int

	// Inline is the largest message, in bytes, that is copied into its work request instead
	// of the send buffer. 0 stands for 64.
	Inline int

	// KeepAlive is the interval of probes, which only the peer's device answers. They detect
	// the loss of the peer while there is nothing to send. 0 stands for 15 s, as in package
	// net. If KeepAlive is negative, there are no probes.
	KeepAlive time.Duration

	// Spin is how often a call polls before it sleeps. 0 stands for 400 times, which take
	// about 10 µs. After calls that have polled in vain, up to 15 calls don't poll. A call
	// sleeps at once if Spin is negative, or if it is 0 and Go uses one processor
	// (GOMAXPROCS), where polling may keep the peer from its answer.
	Spin int
}

const (
	chunk    = 8 << 10
	minQueue = 16
	maxQueue = 0xfffe

	// A control message needs no credit. Both queues have slots for control messages, so
	// that the peer's always find a receive: controls for messages that give credits,
	// reserved for one of each other kind.
	controls = 4
	reserved = 3
)

// complete checks the options, and fills in the defaults and the device's limits. A message takes the given
// number of requests.
func (o Options) complete(limits *verbs.DeviceAttr, requests int) (Options, error) {
	for _, f := range []struct {
		name  string
		value *int
		def   int
		max   int
	}{
		{"SendBuffer", &o.SendBuffer, 128 << 10, 1 << 28},
		{"RecvBuffer", &o.RecvBuffer, 128 << 10, 1 << 28},
		{"SendQueue", &o.SendQueue, 384, maxQueue},
		{"RecvQueue", &o.RecvQueue, 384, maxQueue},
		{"Inline", &o.Inline, 64, 1 << 16},
	} {
		if *f.value < 0 || *f.value > f.max {
			return o, fmt.Errorf("%w: %s %d is not in 0 to %d", verbs.ErrInvalid, f.name, *f.value, f.max)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	if o.Mappings < 0 || o.Mappings > 128 {
		return o, fmt.Errorf("%w: Mappings %d is not in 0 to 128", verbs.ErrInvalid, o.Mappings)
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.Spin == 0 && runtime.GOMAXPROCS(0) > 1 {
		o.Spin = 400
	}
	o.SendBuffer = (o.SendBuffer + chunk - 1) &^ (chunk - 1)
	o.RecvBuffer = (o.RecvBuffer + chunk - 1) &^ (chunk - 1)
	o.SendQueue = min(max(o.SendQueue, minQueue), limits.MaxQPWR/requests-controls-reserved)
	o.RecvQueue = min(max(o.RecvQueue, minQueue), limits.MaxQPWR-controls-reserved)
	o.Inline = max(o.Inline, mappingLen)
	return o, nil
}

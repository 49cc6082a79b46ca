package xfer

import (
	"crypto/tls"
	"log/slog"
	"time"
)

// Options are the arguments of Open. The zero value has the defaults.
type Options struct {
	// Devices names the devices to use, such as "mlx5_0", or "mlx5_0/2" for one port. The
	// default is every port that is active. A device that is named and can't be used is an error.
	Devices []string

	// TLS, if not nil, protects the control connections. A listening engine needs a certificate
	// in it; a dialing one needs ServerName or InsecureSkipVerify, unless the peer's certificate
	// has the dialed host's name. Peer.TLS returns what both sides have agreed on.
	TLS *tls.Config

	// Admit decides about each peer that dials this engine; an error refuses it. Nil admits all. It
	// must not panic, and may call only the Peer's methods Addr and TLS: the rest of it is not made
	// yet. A peer has certificates there only if TLS demands them of clients (tls.Config.ClientAuth).
	Admit func(*Peer) error

	// MaxPeers limits the peers that have dialed this engine, 1024 by default. A peer counts from
	// before Admit until its connection has ended and the program has taken its notifications.
	MaxPeers int

	// ManyPeers is the number of peers from which on new queue pairs use DC, mlx5's dynamically
	// connected transport, between devices that have it: an engine then needs no more of them for more
	// peers. It counts the peers that this engine reads from or writes to. The default is 32. With 1 all
	// queue pairs use DC, and with a negative number none does.
	ManyPeers int

	// SharedKeys registers a granted piece once for all peers, and not once for each. Peers must
	// then trust each other: see "What a peer may do".
	SharedKeys bool

	// SliceBytes is the size of the slices of long reads and writes, 4096 bytes to 1 GiB, 1 MiB
	// by default.
	SliceBytes int

	// SmallBytes is the size up to which a read or write is short, and doesn't wait behind long
	// ones. It is at most SliceBytes, and 16 KiB by default.
	SmallBytes int

	// Window is the number of slices in flight on each rail to each peer, 1 to 1024, 8 by default.
	Window int

	// Spin is how long the goroutine that polls a rail's completions looks for the next one
	// before it sleeps. The default, 0, sleeps at once. Each rail that spins occupies a processor. Unless it
	// is 0, a goroutine that waits for a batch takes completions itself for some microseconds.
	Spin time.Duration

	// AckTimeout is the time after which a device repeats a packet that was not acknowledged; it
	// does so 6 times before the request fails. The default is 67 ms. See verbs.ConnectOptions. It is
	// for RC only.
	AckTimeout time.Duration

	// Patience is how long operations wait for a rail when there is none, and how long a request
	// may take before its queue pair is given up. The default is 30 s. A peer is lost if it doesn't
	// answer what it is asked on the control connection within the longer of Patience and Liveness:
	// it must register a granted piece in that time.
	Patience time.Duration

	// Liveness is the silence on the control connection after which a peer is lost, 20 s by
	// default. Signs of life are sent four times as often as the shorter one of both sides needs.
	Liveness time.Duration

	// Trace, if not nil, is called for each step of each operation, in order, and not concurrently for one
	// Peer. It must not wait, nor call this package.
	Trace func(Trace)

	// Log, if not nil, is told of each queue pair that is made or lost, and of each rail that
	// goes up or down.
	Log *slog.Logger
}

// check sets the defaults.
func (o *Options) check() error {
	orDefault(&o.MaxPeers, 1024)
	orDefault(&o.ManyPeers, 32)
	orDefault(&o.SliceBytes, 1<<20)
	orDefault(&o.SmallBytes, min(16<<10, o.SliceBytes))
	orDefault(&o.Window, 8)
	orDefault(&o.Patience, 30*time.Second)
	orDefault(&o.Liveness, 20*time.Second)
	switch {
	case o.SliceBytes < 4096 || o.SliceBytes > 1<<30:
		return invalid("SliceBytes %d is not in 4096 to 1 GiB", o.SliceBytes)
	case o.SmallBytes < 0 || o.SmallBytes > o.SliceBytes:
		return invalid("SmallBytes %d is not in 0 to SliceBytes, %d", o.SmallBytes, o.SliceBytes)
	case o.Window < 1 || o.Window > 1024:
		return invalid("Window %d is not in 1 to 1024", o.Window)
	case o.MaxPeers < 0 || o.Spin < 0 || o.AckTimeout < 0 || o.Patience < 0 || o.Liveness < 0:
		return invalid("a negative option")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func orDefault[T comparable](v *T, byDefault T) {
	var zero T
	if *v == zero {
		*v = byDefault
	}
}

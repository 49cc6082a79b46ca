// Package rdmacm makes RDMA connections by IP address: what librdmacm is for C,
// without C, over the kernel's own interface, /dev/infiniband/rdma_cm.
//
// There are two ways to use it, of which the second is made of the first.
//
// # The verbs of the connection manager
//
// An [EventChannel] and [ID]s on it are librdmacm's, one for one:
// rdma_resolve_addr is [ID.ResolveAddr], rdma_get_cm_event is
// [EventChannel.Event]. A connection comes to be like this:
//
//	active side                          passive side
//
//	CreateID                             CreateID
//	ResolveAddr   → AddrResolved         Bind
//	ResolveRoute  → RouteResolved        Listen
//	CreateQP                             → ConnectRequest, with a new ID
//	Connect                              CreateQP, and post receives
//	                                     Accept
//	→ Established                        → Established
//	…                                    …
//	Disconnect                           → Disconnected
//	→ Disconnected                       Disconnect
//	Close                                Close
//
// Methods return when the kernel has the task, and an event says what became
// of it. [CreateID] makes IDs on no channel, whose methods wait for that event
// themselves, and return it as an error if it is a bad one. Any number of such
// IDs shares one file descriptor and one goroutine.
//
// # Dial and Listen
//
// [Dial] and [Listen] with [Listener.Accept] make a [Conn] by these steps: a
// connection that owns a protection domain, CQs, a queue pair and registered
// buffers, that sends and receives messages, and that closes all of it in
// order, whichever side ends it. Its queue pair may be used for all else:
// [Options.Prepare] is the place to post the receives and register the memory
// that the peer will use first.
//
// # Linking
//
// Names are looked up by package net, which uses libc's resolver where cgo is
// enabled. With CGO_ENABLED=0, or -tags netgo, the binary is static.
//
// # Errors
//
// A refused call is an [*OpError]. A bad event is an [*EventError], which is
// ErrRejected, ErrUnreachable, ErrAddrResolution or another of this package's
// errors, with errors.Is; it has the peer's private data where there is some.
package rdmacm

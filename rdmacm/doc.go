// Package rdmacm makes RDMA connections by IP address. It is librdmacm in pure
// Go: it uses the kernel's interface, /dev/infiniband/rdma_cm, directly.
//
// There are three ways to use the package, each built on the one before.
//
// # The verbs of the connection manager
//
// An [EventChannel] and the [ID]s on it match librdmacm's one for one:
// rdma_resolve_addr is [ID.ResolveAddr], rdma_get_cm_event is
// [EventChannel.Event]. A connection is established like this:
//
//	active side                          passive side
//
//	CreateID                             CreateID
//	ResolveAddr   → EventAddrResolved    Bind
//	ResolveRoute  → EventRouteResolved   Listen
//	CreateQP                             → EventConnectRequest, with a new ID
//	Connect                              CreateQP, and post receives
//	                                     Accept
//	→ EventEstablished                   → EventEstablished
//	…                                    …
//	Disconnect                           → EventDisconnected
//	→ EventDisconnected                  Disconnect
//	Close                                Close
//
// A method returns once the kernel has accepted the request, and an event reports
// the outcome. One goroutine can serve any number of connections.
//
// # Verbs that wait
//
// A [SyncID] has no channel. Its methods take the same steps, wait for the event
// themselves, and return a failure as an error. [SyncID.Request] waits for the next
// client. [ID.MigrateSync] and [SyncID.Migrate] turn one kind of ID into the other.
//
// # Dial and Listen
//
// [Dial], and [Listen] with [Listener.Accept] or [Listener.Serve], take these steps for the
// caller and return a [Conn]. A Conn owns a protection domain, CQs, a queue pair and
// registered buffers. It sends and receives messages: one by one with [Conn.Send] and
// [Conn.Recv], many at a time with [Conn.Post] and [Conn.Flush], without a copy in a
// [SendBuffer] or a [RecvBuffer]. It closes everything in order, whichever side ends the
// connection. It accesses the peer's memory with [Conn.Read], [Conn.Write] and
// [Conn.FetchAdd]. The queue pair may be used for other requests too: [Options.Prepare] is
// the place to register the memory and to post the receives that the peer will use first.
//
// Connections share memory, or queues, through a [Transport]: a server registers a region once,
// for all of its clients.
//
// The network "tcp" is the connection manager's port space of this name. Its ports are independent of TCP's
// own, except over iWARP.
//
// # Datagrams
//
// In the port space [PortSpaceUDP], the connection manager only exchanges addresses: the UD queue pair is
// never connected. A server's ID creates its queue pair after Bind. For each
// [EventConnectRequest], or [SyncID.Request], the server accepts with the number of that
// queue pair in [ConnParam], and closes the request's ID, which gets no event. The client
// resolves the server's address, creates its queue pair and connects. [EventEstablished] has
// the server's address handle attributes, queue pair number and Q_Key in [Event].UD, with
// which it sends. The server learns where to send its answer from the datagram's completion:
// see AHAttrFromWC of package verbs. Everything is closed in the order queue pair, memory,
// ID.
//
// # Events
//
// The table says what each event does. In addition, an ID's channel or [SyncID.Event] delivers the event,
// unless a method of the SyncID has waited for it.
//
//	event             ID, SyncID                                       Dial, Listener      Conn
//
//	AddrResolved      opens the device; ResolveAddr returns            the next step       –
//	AddrError         ResolveAddr fails                                Dial: next address  –
//	RouteResolved     ResolveRoute returns                             the next step       –
//	RouteError        ResolveRoute fails                               Dial: next address  –
//	ConnectRequest    makes a new ID; Request returns it               Listener: decides   –
//	ConnectResponse   brings the ID's QP to RTS: then as Established,  as there            –
//	                  or as ConnectError; else Connect returns
//	Established       Connect and Accept return                        there is a Conn     –
//	ConnectError      Connect and Accept fail; Request, if this side   as there; Listener: ends: ErrConnect
//	                  lacks what a client needs                        Refused
//	Unreachable       Connect and Accept fail                          as there            ends: ErrUnreachable
//	Rejected          the QP flushes; Connect and Accept fail          as there            ends: ErrDisconnected
//	Disconnected      Disconnect and Accept return; others fail        as there            ends: ErrDisconnected
//	TimewaitExit      Disconnect returns                               –                   ends: ErrDisconnected
//	AddrChange        Request fails                                    Listener ends       ends: ErrUnreachable
//	DeviceRemoval     all fail but Close, whatever they wait for       Listener ends       ends: ErrDeviceRemoved
//	MulticastJoin     attaches the QP; JoinMulticast returns           –                   –
//	MulticastError    JoinMulticast fails, or the group is lost        –                   –
//	User              –                                                –                   –
//
// Linux, from 5.19 on, reports Unreachable on an established connection when the link-layer address
// of the neighbour on the way to the peer changes, and AddrChange when a bond moves this end's
// address to another interface. The queue pair still has the old addresses. Its packets may be lost,
// and an idle connection would wait for ever. A Conn therefore ends, even if the old path still
// works. Dial again.
//
// # iWARP
//
// Over iWARP, the kernel connects the queue pair, and reports EventEstablished to both sides. It
// transmits private data as it is, and doesn't pad it with zeros.
//
// The side that connects must send first. If the other side sends earlier, its data may arrive as
// a part of the handshake, which then fails. A message for which the peer has no receive posted
// ends the connection, instead of waiting. A send completes, and [Conn.Send] returns, when the
// data is with TCP. The work requests of a connection that has ended are flushed before
// EventDisconnected.
//
// Soft-iWARP, as of Linux 6.1, doesn't protect its listeners. A client that leaves before the
// server's kernel has accepted its TCP connection ends the listener: from then on, clients
// are refused, and no event reports it. If more clients connect at once than the backlog
// allows, the listener falls behind by the excess, and its next clients time out. On the
// accepting side, a message that arrives just after the kernel's answer may be delivered only
// with the client's next message.
//
// A QP of the caller's own is in RTS after EventEstablished. QP.Modify with QPAttrState then informs package
// verbs, and [ID.InitQPAttr] and [ID.Establish] are not needed.
//
// # Closing
//
// Close may be called more than once, and on a nil pointer, where it does nothing. A
// method that needs a closed object returns an error that matches [ErrClosed]. No
// other method may be called on a nil pointer, unlike in package verbs, and none on a
// zero ID, SyncID, Conn, Listener or EventChannel: most of them panic.
//
// # Linking
//
// Package net resolves names. With cgo it uses libc's resolver. With CGO_ENABLED=0, or -tags
// netgo, the binary is static.
//
// # Errors
//
// A call that fails returns an [*OpError]. An event that reports a failure
// becomes an [*EventError]. With errors.Is it matches ErrRejected,
// ErrUnreachable, ErrAddrResolution or another of this package's errors. It has
// the peer's private data if there is any.
package rdmacm

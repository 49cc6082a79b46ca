// Package xfer moves memory between machines, over all their RDMA links at once, and through the
// faults of some of them.
//
// An [Engine] opens the machine's devices. Each port that it can use is a rail. [Memory] is
// registered once, on every rail. Its owner grants others the use of a [Piece] of it, and the
// [Grant]'s [Remote] says in a few bytes what was granted: it travels as JSON or as binary, over
// any channel.
//
//	e, err := xfer.Open(xfer.Options{})
//	blocks, err := e.Alloc(1 << 30)
//	grant, err := blocks.All().Grant(xfer.GrantOptions{Access: xfer.Read})
//	l, err := e.Listen(ctx, ":7400")
//	json.NewEncoder(w).Encode(grant.Remote().Slice(off, n)) // to whoever asks for these bytes
//
// Another program dials the engine, and reads and writes what it was granted. The owner's program
// takes no part in that:
//
//	peer, err := e.Dial(ctx, "10.0.0.7:7400")
//	err = peer.Read(ctx, mine.Slice(0, n), remote)
//	err = peer.Write(ctx, remote, mine.Slice(0, n))
//
// # Operations
//
// [Peer.Read] and [Peer.Write] do one thing and wait for it. A [Batch] has any number of reads,
// writes, atomic operations and at most one notification, and may be started, waited for and used
// again without an allocation:
//
//	var b xfer.Batch
//	b.Write(remote, mine.Slice(0, n))
//	b.Notify(7)
//	err := peer.Start(&b)
//	…
//	err = b.Wait(ctx)
//
// The parts of a batch are carried out in no particular order, except that the notification comes
// last: [Engine.Notified] returns it at the peer once all bytes of the batch's writes are there.
// Each notification is returned once.
//
// Parts of more than [Options.SliceBytes] are cut into slices. Each rail takes the next slice when
// it has room, so that a rail with twice the speed carries twice as much. Short parts have queue
// pairs of their own, and don't wait behind long ones.
//
// A batch ends with success only when everything in it was done. The peer's device has then
// acknowledged every byte. That is not yet the moment from which each program sees it: a device may
// acknowledge bytes that are still on their way into memory. So a program learns from a notification
// that it may use what a peer has written, and not from a message that has come another way.
//
// # Faults
//
// When a request fails, or a rail goes down, the queue pair is closed at both ends, and a new one
// is made, at first at once, and then with growing pauses. What was in flight is sent again over
// another rail, but not before the peer has said that its end is closed: a packet that is still on
// its way must not arrive after later data. The same answer says which notifications have arrived,
// so that none comes twice. The rail is used again as soon as a first request over its new queue pair
// has succeeded.
//
// Some failures are not repaired. A batch then ends with an [*Error], which names the rail, the
// peer, and the completion's status and vendor syndrome. It matches
//   - [ErrRevoked], if the memory's owner has revoked the grant;
//   - [ErrStale], if the Remote was made by an engine that no longer exists, such as that of a
//     process that was restarted at the same address;
//   - [ErrDenied], if the owner refuses: the Remote was forged, isn't meant for this peer, or
//     doesn't allow the access;
//   - [ErrPeerLost], if the control connection has ended;
//   - [ErrNoRail], if no rail has reached the peer for [Options.Patience];
//   - [ErrUncertain], in addition, if an atomic operation may have been carried out.
//
// ErrPeerLost says nothing of when the peer has noticed. Until it has, what was in flight may still
// arrive there, even after a new connection was made to it. The peer notices a closed TCP connection at
// once, and a silent one after its [Options.Liveness].
//
// After an error, some of the batch's operations may have been carried out, and others in part or
// not at all.
//
// # Cancelling
//
// The end of a context can't call back a request that a device has begun. [Batch.Wait] then returns
// a [*PendingError], which says how many bytes are done and how many may still be read or written.
// The batch's memory stays in use until [Batch.Done]. [Batch.Cancel] takes back what no device has
// begun. Read, Write and [Peer.Do] cancel, and wait for the rest, so that the memory is the caller's
// again when they return.
//
// # What a peer may do
//
// Peers talk to each other over a TCP connection, with TLS if [Options.TLS] is set. It carries
// addresses, keys and signs of life, but no data. A Remote has a secret of 128 bits, and is as good
// as the right to use the memory: send it only to those who may. [GrantOptions.Allow] restricts it
// to some peers. Who a peer is, only TLS says: the engine that a Remote or a connection names is not
// proven.
//
// Keys never leave the control connection. When a peer first uses a Remote, its owner checks the
// secret, and registers the granted piece for this peer alone: in a protection domain that only the
// peer's queue pairs belong to, with just the granted access. So the devices enforce what was
// granted, even if the peer's software is not this package. The price is one registration for each
// peer, grant and rail, which pins no further memory but counts towards the limit of locked memory.
// [Options.SharedKeys] lets all peers share one registration. They must then trust each other not
// to guess keys, of 32 bits.
//
// [Grant.Revoke] deregisters these. It asks the peers to stop, waits for them for a moment, and
// then deregisters the memory in any case. When it returns nil, no peer can read or write the
// memory by this grant any more. A peer that didn't stop in time finds its request failed and its
// queue pair closed, which costs it some milliseconds. Grants that expire, and the grants of
// memory that is closed, are revoked in the same way.
//
// # Transports
//
// A rail reaches rails of the same transport: RC queue pairs over InfiniBand and RoCE, SRD of EFA, iWARP
// through the connection manager and, between mlx5 devices, DC from [Options.ManyPeers] peers on. iWARP and
// EFA need an import of their providers:
//
//	import _ "github.com/goverbs/goverbs/provider/efa"
//
// What this page promises holds over each. Where a transport lets requests overtake each other, or
// completes a write before the peer has it, the fences that come before a notification make up for it.
// Atomic operations are for RC and DC.
//
// # When not to use it
//
// For messages, use package rdmacm or rsocket. Devices that xfer can't use it leaves out, and says why:
// see [Engine.LeftOut].
package xfer

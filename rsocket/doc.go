// Package rsocket is sockets over RDMA: a net.Conn and a net.Listener whose bytes go over RDMA
// writes. The peer may be any program that uses librdmacm's rsockets, such as rstream, or a program
// written for TCP under librspreload.so. The protocol is rsocket's, version 1.
//
// Code written for TCP works as it is:
//
//	l, err := rsocket.Listen("tcp", ":7471")
//	http.Serve(l, handler)
//
//	transport := &http.Transport{DialContext: new(rsocket.Dialer).DialContext}
//
// An address is that of an RDMA device's network interface. The port numbers are the connection
// manager's, and independent of TCP's. [Dialer.DialAny] and [ListenConfig.ListenAny] use TCP where
// RDMA can't be used.
//
// # Beside package net
//
// A Conn, a Listener and a Dialer work as TCP's, and have the same errors, with these exceptions:
//
//   - Close returns at once, as TCP's does. But this process, not the kernel, then sends the written data. If
//     the process ends meanwhile, the data is lost: see Conn.SetLinger.
//   - After Conn.CloseRead, other calls on the Conn drop the bytes that arrive. TCP needs no such calls.
//   - Close must be called. The device and the connection manager refer to an open Conn or Listener, so the
//     garbage collector doesn't free one that is forgotten.
//   - There is no ReadFrom and no WriteTo. ReadFrom would only save a copy, which Conn.WriteMR does. WriteTo
//     would give a writer memory that the peer can still change.
//   - A client that waits for Accept already has the memory of a connection: see ListenConfig.Backlog.
//   - Listener.Accept also reports, as temporary errors, that this side could not make a connection for a client.
//   - A Dialer tries the addresses of a name in turn, and doesn't race IPv6 and IPv4. Its LocalAddr is a
//     netip.AddrPort, and its Control, as a ListenConfig's, has an ID of the connection manager.
//   - KeepAlive is an interval: 15 s by default, as TCP's. The first message that the peer's device doesn't
//     acknowledge ends the connection, after the device has repeated it for some seconds.
//   - There is no File and no SyscallConn.
//
// # How bytes travel
//
// Each side has a ring in its memory, whose halves it publishes to the peer in turn. Write copies
// bytes to the connection's send buffer, and the device writes them into the peer's ring, where
// Read copies them from. Short messages are part of the work request. So there are two copies, one
// on each side. WriteMR sends registered memory without a copy on this side, and WriteAt writes to memory
// that the peer has mapped, where no Read copies it. A Write waits while the ring or the send buffer is full.
//
// Completions are processed by the calls that wait for something. So an idle connection costs only its
// memory, and the next call notices that a peer is gone. The memory is that of the buffers and queues in
// Options, and a few KiB: on rxe 697 KiB with the default sizes, where librdmacm takes 700, and 67 KiB with
// the smallest ones. The kernel's part is not counted. All of it is locked: under a limit of 8 MiB (ulimit
// -l), there is room for 11 connections with the default sizes. See RaiseMemlock in package verbs.
//
// # iWARP
//
// iWARP has no immediate data. As in librdmacm, each message is therefore a send of four bytes after the
// write that it announces, and takes two slots in the send queue. The device doesn't say how
// much the peer has written: if the peer announces more than that, Read returns older bytes
// of the ring. A message counts as arrived, for WriteMR and Close, when TCP has taken it.
//
// # The end
//
// Close notifies the peer, whose reads then return io.EOF after the last byte. If the peer's
// process ends without Close, or breaks the protocol, or if the network is lost, calls return
// an error that matches syscall.ECONNRESET, after the bytes that have arrived. A C program
// that waits in rrecv learns of the end of its peer's process only when it sends.
//
// When the connection manager reports that the network has changed under a connection
// (rdmacm.EventUnreachable, rdmacm.EventAddrChange), the Conn probes the peer at once, also without
// KeepAlive. If the peer doesn't answer, the connection ends. Otherwise it goes on: often only a neighbour
// table has changed.
//
// # Trust
//
// The peer's device can write to the ring and to a small list beside it, and to nothing else but the
// memory given to Conn.Map. It can do so at any time. So Read copies bytes before the program sees
// them. The peer's messages are checked. A message that breaks the protocol ends the
// connection with ErrProtocol. Clients that don't complete their handshake neither keep
// others from a Listener nor take much memory: it keeps up to 64 of them, for up to 10 s, or
// for 2 s if there are more.
package rsocket

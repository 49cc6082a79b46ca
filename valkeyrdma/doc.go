// Package valkeyrdma is Valkey's RDMA transport: a net.Conn for clients of a Valkey server, and a net.Listener for
// servers that Valkey's clients reach. What the connections carry is the same as over TCP.
//
// A client library that takes a function to dial with needs no other change:
//
//	// github.com/redis/go-redis
//	redis.NewClient(&redis.Options{Addr: "192.168.1.7:6379", Dialer: new(valkeyrdma.Dialer).DialContext})
//
//	// github.com/valkey-io/valkey-go
//	dial := func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
//		return new(valkeyrdma.Dialer).DialContext(ctx, "tcp", address)
//	}
//	valkey.NewClient(valkey.ClientOption{InitAddress: []string{"192.168.1.7:6379"}, DialCtxFn: dial})
//
// The server is valkey-server that was built with RDMA (from version 8.1 on: --rdma-bind ADDRESS --rdma-port PORT), or a
// [Listener]. An address is that of an RDMA device's network interface. The port numbers are the connection
// manager's, and independent of TCP's.
//
// # How bytes travel
//
// Each side registers a part of its memory with the peer. The peer writes into it (RDMA write with immediate data, whose
// value is the number of bytes), until the part is full, and waits for the next one. Write copies bytes to the
// connection's send buffer, and Read copies them from the memory that the peer has written. So there are two copies,
// one on each side. Read and Write allocate nothing.
//
// Completions are processed by the calls that wait for something. So an idle connection costs only its memory, and a
// Write whose bytes don't fit into the rest of the registered part may wait for the peer's next call.
//
// A peer has 1,024 receives, and each message takes one. A server of Valkey says that its clients' devices shall not
// repeat a message without a receive, so a client that is faster than the server would lose its connection. Therefore a
// Dialer's connection asks the server, before half of the receives are taken, for its features. The answer shows
// how many messages the server has received.
//
// # Beside package net
//
// A Conn works as TCP's, and has the same errors, with these exceptions:
//
//   - The wire has no end of one direction: there is no CloseWrite.
//   - Close returns at once, as TCP's does. But this process, not the kernel, then sends the written data: see
//     Conn.SetLinger. A C peer drops what it has not read when the connection ends.
//   - If the peer's process ends without Close, reads return io.EOF after the bytes that have arrived.
//   - Close must be called. The device and the connection manager refer to an open Conn or Listener.
//   - The first message of KeepAlive that the peer's device doesn't acknowledge ends the connection.
//   - iWARP has no immediate data. On its devices Dial and Accept return an error that matches errors.ErrUnsupported.
//
// # Trust
//
// Nothing is encrypted, and RDMA has no TLS: use it in networks that others don't reach, with the server's
// authentication. The peer's device can write to the registered memory, at any time, and to nothing else. Read copies
// bytes before the program sees them. The peer's messages are checked. A message that it could not have sent ends the
// connection with ErrProtocol. Clients that don't complete their handshake neither keep others from a Listener nor take
// much memory.
//
// The wire is described in Valkey's documentation (https://valkey.io/topics/RDMA/).
package valkeyrdma

// Package verbstest provides RDMA devices for tests of programs that use packages verbs, rdmacm,
// rsocket, valkeyrdma and xfer, and s3rdma's RC variant. They need no hardware, no kernel module
// and no permission: a Network is in the test's own process, and stands in for the kernel.
//
//	func TestServer(t *testing.T) {
//		verbstest.New(t)
//		l, err := rdmacm.Listen(t.Context(), "tcp", "127.0.0.1:0", nil)
//		...
//	}
//
// The Network's devices replace the machine's, so that the program under test finds them as it
// finds real devices: verbs.Open("") opens the first, rdmacm and rsocket open the device that has
// the address, and xfer.Open opens all or those that it is told to. They resemble Soft-RoCE devices, and use package provider/rxe. They have
// RC, UC and UD queue pairs, SRQs, RDMA writes and reads, atomics, multicast, completion
// channels, asynchronous events, and connections. They have no memory windows, XRC, raw
// packets, timestamps or on-demand paging: verbs that need these fail with
// verbs.ErrNotSupported. Other processes can't use the devices, and package rdmanl doesn't
// see them.
//
// [Network.SetFault] loses packets, and makes requests wait or fail. [Network.SetRefusal]
// makes the kernel refuse commands. [Device.SetPort] takes a link down, [Device.SetAddr] changes
// an address, and [Device.Remove] removes a device.
//
// # Order
//
// A Network executes a send request when it is posted, in the goroutine that posts it: when
// PostSend returns, the request has completed. Only two kinds of requests take time: requests
// that find no receive, and requests that get no answer. They are retried after the times set
// in the queue pairs. So a test whose program has one goroutine runs the same way each time,
// even with faults that Random chooses. A real device takes time for all requests. A program
// must not rely on a completion that it has not polled.
//
// As with real devices, Go's race detector doesn't see a device's accesses to memory.
//
// Off Linux, New skips the test.
package verbstest

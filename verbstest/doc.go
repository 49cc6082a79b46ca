// Package verbstest provides RDMA devices for tests of programs that use packages verbs, rdmacm
// and rsocket. They need no hardware, no kernel module and no permission: a Network is in the
// test's own process, and stands in for the kernel.
//
//	func TestServer(t *testing.T) {
//		verbstest.New(t)
//		l, err := rdmacm.Listen(t.Context(), "tcp", "127.0.0.1:0", nil)
//		...
//	}
//
// The Network's devices replace the machine's, so that the program under test finds them as it
// finds real devices: verbs.Open("") opens the first, and rdmacm and rsocket open the device that
// has the address. They are like Soft-RoCE's, and driven by package provider/rxe: RC, UC and UD
// queue pairs, SRQs, RDMA writes and reads, atomics, multicast, completion channels, asynchronous
// events, and connections. They have no memory windows, XRC, raw packets, timestamps and on-demand
// paging: that fails with verbs.ErrNotSupported. Other processes can't use them, and package
// rdmanl doesn't see them.
//
// [Network.SetFault] loses packets, and makes requests wait or fail. [Network.SetRefusal] makes
// the kernel refuse commands. [Device.SetPort] takes a link down, and [Device.Remove] a device
// away.
//
// # Order
//
// A Network executes a send request when it is posted, in the goroutine that posts it: when
// PostSend returns, the request has completed. Only two kinds of requests take time: those that
// find no receive, and those that get no answer. They are retried after the times set in the queue
// pairs. So a test whose program has one goroutine runs the same way each time, even with faults
// that Random chooses. A real device takes time for all requests. A program must not rely on a
// completion that it has not polled.
//
// Go's race detector doesn't see what a device does to memory, here as elsewhere.
//
// Off Linux, New skips the test.
package verbstest

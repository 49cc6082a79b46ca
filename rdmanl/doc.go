// Package rdmanl asks the kernel about RDMA devices, and changes them, over its netlink family
// for RDMA. It replaces the program rdma(8) of iproute2.
//
// It lists devices and links, and adds and deletes those of software drivers: Soft-RoCE (rxe)
// and soft-iWARP (siw). It lists the objects that exist on a device and the processes that own
// them, reads and binds counters, and reports events of devices and links ([Watch]). Package
// monitor reads the counters that are not in netlink, such as bytes.
//
// Each function is one conversation with the kernel, over a socket of its own. All functions are
// safe for concurrent use. The socket is in the network namespace of the calling thread, and
// shows the devices that are visible there. A context ends the wait for an answer. It does not
// undo what the kernel has begun.
//
// A device is identified by its index, which it keeps as long as it exists, even when it is
// renamed. [FindDevice] finds it by name.
//
// Kernels and drivers differ in what they report. A value that may be missing is an [Optional],
// which distinguishes a zero from no answer. The kernel's answers are not trusted: an answer that
// is truncated, or whose attributes have other sizes than they should, is an error.
//
// Listing needs no privilege, but without CAP_NET_ADMIN the kernel leaves out keys and addresses
// of memory. Changes need CAP_NET_ADMIN.
package rdmanl

// Package rdmanl asks the kernel about RDMA devices, and changes them, over its netlink family
// for RDMA. It replaces the program rdma(8) of iproute2.
//
// It lists devices and links, and adds and deletes those of software drivers: Soft-RoCE (rxe)
// and soft-iWARP (siw). It lists the objects that exist on a device and the processes that own
// them, reads and binds counters, and tells what happens to devices and links ([Watch]). Package
// monitor has the counters that are not in netlink, such as bytes.
//
// Each function is one conversation with the kernel, over a socket of its own. All functions may
// be called at the same time. The socket is in the network namespace of the calling thread, and
// shows the devices that are visible there. A context ends the wait for an answer. It does not
// undo what the kernel has begun.
//
// A device is identified by its index, which it keeps as long as it exists, also under another
// name. [FindDevice] finds it by name.
//
// Kernels differ in what they tell, and drivers, too. What may be missing is an [Optional], which
// tells a zero from no answer. Nothing that the kernel sends is trusted: an answer that is
// truncated, or whose attributes have other sizes than they should, is an error.
//
// Listing needs no privilege, but without CAP_NET_ADMIN the kernel leaves out keys and addresses
// of memory. Changes need CAP_NET_ADMIN.
package rdmanl

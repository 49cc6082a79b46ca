// Package monitor reports the state, speed, MTU and counters of the ports of RDMA devices. It
// opens no device, so a program needs no permission for /dev/infiniband.
//
// [Host.Ports] lists the ports of this host, and [Host.Counters] returns the counters of a port.
// Each [Counter] says where it is from, its unit, and whether it is a gauge:
//
//   - The files in counters of sysfs are those of the port's performance management agent (PMA),
//     which the kernel asks: bytes, packets, and errors of the link. Adapters have them, efa and siw
//     don't, and rxe has some on new kernels.
//   - Netlink has the driver's own counters (hw_counters), with the optional ones that are switched
//     on: see package rdmanl. Where netlink can't be used, the files in hw_counters of sysfs are
//     read. They have no optional counters.
//   - [PMA.Counters] asks the agent of any port of an InfiniBand subnet, including a switch's, over
//     package umad. If a port has error counters of 64 bits, it returns these; in sysfs they stop
//     at 16 bits or less. This needs permission for /dev/infiniband/umad*.
//
// Two sources may have a counter of the same name: rxe's link_downed is in both of the first two.
//
// rdmanl.Watch reports when links go up and down.
//
// Errors wrap those of the file system and of packages rdmanl and umad: the error for a missing
// device or port matches fs.ErrNotExist.
package monitor

// Package monitor tells what the ports of RDMA devices do: their state, speed and MTU, and their
// counters, bytes among them. It opens no device, so a program needs no permission for
// /dev/infiniband.
//
// [Host.Ports] lists the ports of this host, and [Host.Counters] returns what one has counted. Each
// [Counter] says where it is from, its unit, and whether it is a gauge:
//
//   - The files in counters of sysfs are those of the port's performance management agent (PMA),
//     which the kernel asks: bytes, packets, and errors of the link. Adapters have them, efa and siw
//     don't, and rxe has some on new kernels.
//   - Netlink has the driver's own counters (hw_counters), with the optional ones that are switched
//     on: see package rdmanl. Where netlink doesn't serve, the files in hw_counters of sysfs do,
//     which have no optional ones.
//   - [PMA.Counters] asks the agent of any port of an InfiniBand subnet, a switch's too, over
//     package umad. Of a port that has counters of 64 bits for errors it returns these; in sysfs
//     they stop at 16 bits or less. This needs permission for /dev/infiniband/umad*.
//
// Two sources may have a counter of the same name: rxe's link_downed is in both of the first two.
//
// Package rdmanl tells when links go up and down: rdmanl.Watch.
//
// Errors wrap those of the file system and of packages rdmanl and umad: what doesn't exist matches
// fs.ErrNotExist.
package monitor

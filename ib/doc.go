// Package ib has the types that the other packages share: the states, speeds and widths of ports,
// GUIDs, the types and states of queue pairs. A [PortState] has the same type, and is printed the
// same, whether package verbs gets it from an opened device, rdmanl from netlink, monitor
// from sysfs or sa from the subnet administration.
//
// The names are InfiniBand's. RoCE and iWARP devices use the same names. Package verbs
// declares the values that its users need under names of its own: verbs.PortActive is
// [PortActive].
package ib

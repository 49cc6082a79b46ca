// Package ib has the words that the other packages share: the states, speeds and widths of ports,
// GUIDs, the types and states of queue pairs. A [PortState] is the same type whether package verbs
// has it from an opened device, rdmanl from netlink, monitor from sysfs or sa from the subnet's
// administration, and is printed the same.
//
// The names are those of InfiniBand, whose RoCE and iWARP devices have the same ones. Package verbs
// has its own names for what a program of verbs needs: verbs.PortActive is [PortActive].
package ib

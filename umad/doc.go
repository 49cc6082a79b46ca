// Package umad sends and receives InfiniBand management datagrams (MADs), through the kernel's
// module ib_umad. It replaces libibumad.
//
// A MAD queries a port or a node, or sets an attribute there. MADs have classes: subnet
// management (the SM's own), subnet administration (SA), performance management (counters),
// and those of vendors. An [Agent] sends MADs of one class and receives the answers. If it
// registers for methods, it also receives requests of its class.
//
// A [Port] is one open file. Its agents share one queue of received MADs, from which [Port.Receive]
// takes. [Agent.Do] sends a request and waits for the answer.
//
// The addresses are those of the InfiniBand subnet: LIDs, or a directed route inside the MAD.
// Package umad knows the header that all classes share, but no attributes. Package sa knows
// the attributes of subnet administration, and package monitor those of performance
// management.
//
// Received MADs are not trusted: other hosts have sent them. A MAD that is shorter than its header
// is an error.
//
// The files in /dev/infiniband usually belong to root.
package umad

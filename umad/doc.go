// Package umad sends and receives InfiniBand management datagrams (MADs), through the kernel's
// module ib_umad. It replaces libibumad.
//
// A MAD asks a port or a node about itself, or sets something there. Classes of MADs exist for the
// subnet's management (the SM's own), its administration (SA), for counters, and for vendors. An
// [Agent] sends MADs of one class and receives the answers. If it registers for methods, it also
// receives requests of its class.
//
// A [Port] is one open file. Its agents have one queue of received MADs together, which
// [Port.Receive] takes from. [Agent.Do] sends a request and waits for the answer.
//
// The addresses are those of the InfiniBand subnet: LIDs, or a directed route inside the MAD.
// Package umad knows the header that all classes share, and no attributes. Package sa knows those of
// subnet administration, and package monitor those of counters.
//
// Nothing that arrives is trusted: other hosts have sent it. A MAD that is shorter than its header
// is an error.
//
// The files in /dev/infiniband usually belong to root.
package umad

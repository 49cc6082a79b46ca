// Package perftest measures bandwidth and latency between two hosts, as linux-rdma's
// perftest does. The other side may be one of its programs.
package perftest

import "github.com/goverbs/goverbs/verbs"

// A verb is the operation that a tool measures.
type verb int

const (
	send verb = iota
	write
	read
	atomics
)

// A Tool is one of perftest's programs.
type Tool struct {
	Name    string // without "ib_"
	Summary string
	verb    verb
	latency bool
	raw     bool // Ethernet frames
	burst   bool // latencies under load
}

// Program is perftest's name of the tool.
func (t Tool) Program() string {
	if t.raw {
		return t.Name
	}
	return "ib_" + t.Name
}

// Tools are all tools.
var Tools = []Tool{
	{"send_bw", "measure the bandwidth of sends", send, false, false, false},
	{"send_lat", "measure the latency of sends", send, true, false, false},
	{"write_bw", "measure the bandwidth of RDMA writes", write, false, false, false},
	{"write_lat", "measure the latency of RDMA writes", write, true, false, false},
	{"read_bw", "measure the bandwidth of RDMA reads", read, false, false, false},
	{"read_lat", "measure the latency of RDMA reads", read, true, false, false},
	{"atomic_bw", "measure the rate of atomic operations", atomics, false, false, false},
	{"atomic_lat", "measure the latency of atomic operations", atomics, true, false, false},
	{"raw_ethernet_bw", "measure the bandwidth of raw Ethernet frames", send, false, true, false},
	{"raw_ethernet_lat", "measure the latency of raw Ethernet frames", send, true, true, false},
	{"raw_ethernet_burst_lat", "measure the latency of raw Ethernet frames under load", send, true, true, true},
}

// title returns the verb's name in the reports.
func (v verb) title() string {
	return [...]string{"Send", "RDMA_Write", "RDMA_Read", "Atomic"}[v]
}

// access returns the access of the peer that the memory and the queue pairs allow.
func (v verb) access() verbs.AccessFlags {
	return [...]verbs.AccessFlags{
		0, verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic,
	}[v]
}

// responds reports whether the responder keeps state for each request in flight.
func (v verb) responds() bool { return v == read || v == atomics }

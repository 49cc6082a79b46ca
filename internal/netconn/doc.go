// Package netconn is what a net.Conn over RDMA needs beside its wire: deadlines, waits that process completions,
// the channels of events that all connections share, dialing, listening, and errors that match TCP's.
package netconn

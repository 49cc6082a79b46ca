package perftest

import (
	"testing"

	"github.com/goverbs/goverbs/verbs"
)

// TestQueues: split queue pairs that send and receive come in halves.
func TestQueues(t *testing.T) {
	for _, test := range []struct {
		tool, line string
		queues     int
		first      verbs.QPType
		last       verbs.QPType
		receiver   int // of the first one's messages
		shares     bool
	}{
		{"send_bw", "host --qp=3", 3, verbs.RC, verbs.RC, 0, false},
		{"send_bw", "--use-srq --qp=3", 3, verbs.RC, verbs.RC, 0, true},
		{"send_bw", "host --use-srq", 1, verbs.RC, verbs.RC, 0, false},
		{"send_bw", "host --connection=XRC --qp=3", 3, verbs.XRCSend, verbs.XRCSend, 0, true},
		{"send_bw", "--connection=XRC --qp=3", 3, verbs.XRCRecv, verbs.XRCRecv, 0, true},
		{"send_bw", "--connection=XRC --reversed", 1, verbs.XRCSend, verbs.XRCSend, 0, true},
		{"write_bw", "--connection=XRC --qp=3 --bidirectional", 6, verbs.XRCSend, verbs.XRCRecv, 3, true},
		{"read_lat", "host --connection=DC", 2, verbs.DCI, verbs.DCT, 1, true},
		{"read_bw", "host --connection=DC", 1, verbs.DCI, verbs.DCI, 0, false},
		{"atomic_bw", "--connection=DC", 1, verbs.DCT, verbs.DCT, 0, true},
		{"read_bw", "--connection=SRD --qp=2 --bidirectional", 2, verbs.SRD, verbs.SRD, 0, false},
	} {
		o, err := parse(t, test.tool, test.line)
		if err != nil {
			t.Errorf("%s %s: %v", test.tool, test.line, err)
			continue
		}
		n := o.queues()
		if n != test.queues || o.typeOf(0) != test.first || o.typeOf(n-1) != test.last || o.receiver(0) != test.receiver || o.shares() != test.shares {
			t.Errorf("%s %s: %d queue pairs from %v to %v, the first one's receiver %d, shared %v",
				test.tool, test.line, n, o.typeOf(0), o.typeOf(n-1), o.receiver(0), o.shares())
		}
		for i := range n {
			if back := o.receiver(o.receiver(i)); back != i {
				t.Errorf("%s %s: %d is the peer of the peer of %d", test.tool, test.line, back, i)
			}
		}
	}
}

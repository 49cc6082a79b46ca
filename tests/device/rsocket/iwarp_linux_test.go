package rsocket

import "github.com/goverbs/goverbs/internal/rdmatest"

// These tests run over iWARP, too, where a message is a send after a write.
var _ = []struct{}{
	rdmatest.Test(TestStreams, rdmatest.AlsoSIW),
	rdmatest.Test(TestHalfClose, rdmatest.AlsoSIW),
	rdmatest.Test(TestCloseRead, rdmatest.AlsoSIW),
	rdmatest.Test(TestDeadlines, rdmatest.AlsoSIW),
	rdmatest.Test(TestCloseEndsCalls, rdmatest.AlsoSIW),
	rdmatest.Test(TestAbort, rdmatest.AlsoSIW),
	rdmatest.Test(TestCloseKeepsData, rdmatest.AlsoSIW),
	rdmatest.Test(TestWriteBuffers, rdmatest.AlsoSIW),
	rdmatest.Test(TestCopy, rdmatest.AlsoSIW),
	rdmatest.Test(TestListener, rdmatest.AlsoSIW),
	rdmatest.Test(TestAnyAddress, rdmatest.AlsoSIW),
	rdmatest.Test(TestLeavesAtOnce, rdmatest.AlsoSIW),
	rdmatest.Test(TestNotAccepted, rdmatest.AlsoSIW),
	rdmatest.Test(TestNoAllocations, rdmatest.AlsoSIW),
	rdmatest.Test(TestWriteMR, rdmatest.AlsoSIW),
	rdmatest.Test(TestMapping, rdmatest.AlsoSIW),
	rdmatest.Test(TestNoMappings, rdmatest.AlsoSIW),
	rdmatest.Test(TestHostilePeers, rdmatest.AlsoSIW),
	rdmatest.Test(TestHostileTargets, rdmatest.AlsoSIW),
	rdmatest.Test(TestHostileHandshakes, rdmatest.AlsoSIW),
	rdmatest.Test(TestFirstCredits, rdmatest.AlsoSIW),
	rdmatest.Test(TestLastMessages, rdmatest.AlsoSIW),
	rdmatest.Test(TestPeerDies, rdmatest.AlsoSIW),
	rdmatest.Test(TestHTTPS, rdmatest.AlsoSIW),
	rdmatest.Test(TestNetcat, rdmatest.AlsoSIW),
	rdmatest.Test(TestCurl, rdmatest.AlsoSIW),
}

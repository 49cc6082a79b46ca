package rsocket

import "github.com/goverbs/goverbs/internal/rdmatest"

// These tests need C programs, or network interfaces that lose packets, which package
// verbstest lacks.
var (
	_ = rdmatest.Test(TestCurl, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestIperf, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestNetcat, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestProxy, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestLossyPath, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestCloseLinkDown, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestPeerVanishes, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestRetries, rdmatest.NotVerbstest)
)

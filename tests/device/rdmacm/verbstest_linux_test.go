package rdmacm

import "github.com/goverbs/goverbs/internal/rdmatest"

// These tests need C programs, network interfaces or the options of IDs, which package
// verbstest lacks, or expect that no device has the address 127.0.0.1.
var (
	_ = rdmatest.Test(TestAddressHints, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestRefused, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestSharedGUID, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestIBAddr, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestIDCancelled, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestUnanswered, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestClientAndServer, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestPerftest, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestRpingErrors, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestRpingPersistent, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestTracedAsC, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestOptions, rdmatest.NotVerbstest)
)

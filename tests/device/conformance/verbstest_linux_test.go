package conformance

import "github.com/goverbs/goverbs/internal/rdmatest"

// Package verbstest has neither memory windows nor devices that other processes can use.
var (
	_ = rdmatest.Test(TestFailuresAsInC, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestImport, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestShare, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestMWType1, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestMWType1Invalidate, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestMWType2, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestMWType2InvalidateLocal, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestMWType2InvalidateRemote, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestMWWithoutAccess, rdmatest.NotVerbstest)
	_ = rdmatest.Test(TestMWLeftBound, rdmatest.NotVerbstest)
)

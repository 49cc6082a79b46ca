package device

// What the device tells its driver about itself.
const (
	maxUAR      = 256
	maxPD       = 1024
	maxMR       = 1 << 14
	maxAH       = 1024
	maxEQ       = 8
	maxEQDepth  = 1024
	maxCQ       = 512
	maxCQDepth  = 1 << 15
	maxQP       = 256
	maxSQDepth  = 4096
	maxRQDepth  = 32768 // descriptors
	maxSendSGEs = 2
	maxRecvSGEs = 3
	maxRDMASGEs = 1
	inlineSize  = 32
	maxTxBatch  = 16 // in units of 64 bytes
	maxPages    = 1 << 20
	maxRDMA     = 1 << 30
	mtu         = 8928 // bytes of a message
	pageSizes   = 0xfffff000
)

// The BARs. BAR 0 has the registers and QEMU's MSI-X table, BAR 2 the send queues, BAR 4 a
// page of doorbells for each UAR.
const (
	RegistersSize  = 16 << 10
	MSIXTable      = 0x2000
	MSIXPending    = 0x3000
	Vectors        = 1 + maxEQ
	LLQSize        = maxQP * maxLLQ
	DoorbellsSize  = maxUAR * doorbellPage
	maxLLQ         = maxSQDepth * sqEntry
	sqEntry        = 64
	rqEntry        = 16
	doorbellPage   = 4096
	cqDoorbells    = maxQP * 8 // offset in a page; each QP has two before
	doorbellsBAR   = 4
	adminVector    = 0
	pageListInline = 4
)

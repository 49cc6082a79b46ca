package firmware

// Status is the first field of a command's outbox, MLX5_CMD_STAT_*.
type Status uint8

// Statuses.
const (
	OK          Status = 0x00
	BadOp       Status = 0x02 // no such command
	BadParam    Status = 0x03
	BadSysState Status = 0x04 // not before INIT_HCA
	BadRes      Status = 0x05 // no such resource, or of the wrong kind
	ResBusy     Status = 0x06 // something else uses the resource
	LimitErr    Status = 0x08 // exceeds the capabilities
	BadResState Status = 0x09
	BadIndex    Status = 0x0a
	NoRes       Status = 0x0f
	BadQPState  Status = 0x10
	BadSize     Status = 0x40 // a CQ has more entries than fit the new size
	BadInLen    Status = 0x50
	BadOutLen   Status = 0x51
)

// Delivery statuses: why a command was not executed at all.
const (
	deliveryOK         = 0x00
	deliveryToken      = 0x02
	deliveryBlock      = 0x03
	deliveryOutPointer = 0x04
	deliveryInPointer  = 0x05
	deliveryInLength   = 0x07
	deliveryOutLength  = 0x08
	deliveryDescriptor = 0x10
)

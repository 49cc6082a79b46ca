package wire

// A Status is what becomes of an entry of a work queue. Its numbers are those of completions.
type Status uint8

// Statuses that a sender finds itself, or that receivers and the wire report.
const (
	OK            Status = 0
	Flushed       Status = 1
	UnsupportedOp Status = 3
	BadAH         Status = 4
	BadLKey       Status = 5
	TooLong       Status = 6
	BadAddress    Status = 7 // of remote memory
	BadQP         Status = 9 // there is none, or it doesn't receive
	NotReady      Status = 10
	BadLength     Status = 11 // longer than the receive
	BadStatus     Status = 12
	UnknownPeer   Status = 14 // the receiver has no AH of the sender
	Unreachable   Status = 15
)

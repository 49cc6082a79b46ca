package transport

// Transition is the command that changes a queue pair's state,
// MLX5_CMD_OP_*.
type Transition uint16

const (
	Rst2Init  Transition = 0x502
	Init2RTR  Transition = 0x503
	RTR2RTS   Transition = 0x504
	RTS2RTS   Transition = 0x505
	SQErr2RTS Transition = 0x506
	ToErr     Transition = 0x507
	ToRst     Transition = 0x50a
	SQD2RTS   Transition = 0x50c
	Init2Init Transition = 0x50e
	RTS2SQD   Transition = 0x508 // not a command of this driver; tests drain by it
)

// Parameters that a transition may set, MLX5_QP_OPTPAR_*.
const (
	OptAltPath    = 1 << 0
	OptRRE        = 1 << 1
	OptRAE        = 1 << 2
	OptRWE        = 1 << 3
	OptPKeyIndex  = 1 << 4
	OptQKey       = 1 << 5
	OptRNRTimeout = 1 << 6
	OptPath       = 1 << 7
	OptSRAMax     = 1 << 8
	OptRRAMax     = 1 << 9
	OptPMState    = 1 << 10
	OptRetryCount = 1 << 12
	OptRNRRetry   = 1 << 13
	OptAckTimeout = 1 << 14
	OptPort       = 1 << 16
	OptSRQN       = 1 << 18
	OptCQNRecv    = 1 << 19
	OptDCKey      = 1 << 21
	OptCounterSet = 1 << 25
)

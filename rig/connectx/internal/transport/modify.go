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
	RTS2SQD   Transition = 0x508
	ToRst     Transition = 0x50a
	SQD2RTS   Transition = 0x50c
	Init2Init Transition = 0x50e
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

// transitions has the initial and final state of each transition.
var transitions = map[Transition]struct{ from, to State }{
	Rst2Init:  {Reset, Init},
	Init2Init: {Init, Init},
	Init2RTR:  {Init, RTR},
	RTR2RTS:   {RTR, RTS},
	RTS2RTS:   {RTS, RTS},
	SQErr2RTS: {SQEr, RTS},
	RTS2SQD:   {RTS, SQD},
	SQD2RTS:   {SQD, RTS},
}

// ModifyQP moves a queue pair from one state to another. It uses the fields of c that the
// transition requires, and those that mask (Opt…) names.
func (e *Engine) ModifyQP(qpn uint32, op Transition, mask uint32, c *QPContext) error {
	q := e.qps[qpn]
	if q == nil || q.special() {
		return ErrNoRes
	}
	switch op {
	case ToRst:
		q.reset()
		return nil
	case ToErr:
		q.toErr()
		return nil
	}
	t, ok := transitions[op]
	if !ok || c == nil {
		return ErrBadParam
	}
	if q.c.State != t.from {
		return ErrBadState
	}
	switch op {
	case Rst2Init:
		if err := q.setInit(c); err != nil {
			return err
		}
	case Init2RTR:
		if err := q.setRTR(c); err != nil {
			return err
		}
	case RTR2RTS:
		q.setRTS(c)
	}
	q.setOptional(mask, c)
	q.c.State = t.to
	switch t.to {
	case RTS:
		q.e.activate(q) // WQEs may have been posted before
	case SQD:
		q.draining = true
		q.drained()
	}
	return nil
}

func (q *QP) setInit(c *QPContext) error {
	if int(c.Primary.Port) > len(q.e.c.Ports) {
		return ErrBadParam
	}
	d := &q.c
	d.RRE, d.RWE, d.RAE, d.AtomicMode = c.RRE, c.RWE, c.RAE, c.AtomicMode
	d.Primary.Port, d.Primary.PKeyIndex = c.Primary.Port, c.Primary.PKeyIndex
	d.QKey, d.CounterSet = c.QKey, c.CounterSet
	d.RLKey = d.RLKey || c.RLKey
	if c.DethSQPN != 0 {
		d.DethSQPN = c.DethSQPN
	}
	if c.PD != 0 {
		d.PD = c.PD
	}
	if d.Service == DCI || d.Service == DCT {
		d.DCAccessKey = c.DCAccessKey
	}
	switch d.Service {
	case QP0, QP1:
		q.e.special[specialKey(max(d.Primary.Port, 1), d.Service == QP1)] = q
	}
	return nil
}

func (q *QP) setRTR(c *QPContext) error {
	d := &q.c
	d.MTU, d.LogMsgMax = c.MTU, c.LogMsgMax
	if d.Service == RC || d.Service == UC || d.Service == XRC || d.Service == DCI || d.Service == UD {
		if d.MTU < 1 || d.MTU > 5 || d.LogMsgMax > 31 {
			return ErrBadParam
		}
	}
	if c.LogRRAMax > 7 || c.RemoteQPN > psnMask {
		return ErrBadParam
	}
	port, pkey := d.Primary.Port, d.Primary.PKeyIndex
	d.Primary = c.Primary
	if c.Primary.Port == 0 {
		d.Primary.Port = port
	}
	d.Primary.PKeyIndex = pkey
	d.RemoteQPN = c.RemoteQPN
	d.LogRRAMax, d.MinRNRNak = c.LogRRAMax, c.MinRNRNak
	d.NextRecvPSN = c.NextRecvPSN & psnMask
	q.resp.psn = d.NextRecvPSN
	q.setMTU()
	return nil
}

func (q *QP) setRTS(c *QPContext) {
	d := &q.c
	d.LogAckReqFreq, d.RetryCount, d.RNRRetry = c.LogAckReqFreq, c.RetryCount, c.RNRRetry
	d.Primary.AckTimeout, d.LogSRAMax = c.Primary.AckTimeout, c.LogSRAMax
	d.NextSendPSN = c.NextSendPSN & psnMask
	q.req.start(d.NextSendPSN)
	q.req.retry, q.req.rnrRetry = d.RetryCount, d.RNRRetry
}

func (q *QP) setOptional(mask uint32, c *QPContext) {
	d := &q.c
	has := func(bit uint32) bool { return mask&bit != 0 }
	if has(OptRRE) {
		d.RRE = c.RRE
	}
	if has(OptRWE) {
		d.RWE = c.RWE
	}
	if has(OptRAE) {
		d.RAE, d.AtomicMode = c.RAE, c.AtomicMode
	}
	if has(OptPKeyIndex) {
		d.Primary.PKeyIndex = c.Primary.PKeyIndex
	}
	if has(OptPort) && int(c.Primary.Port) <= len(q.e.c.Ports) {
		d.Primary.Port = c.Primary.Port
	}
	if has(OptQKey) {
		d.QKey = c.QKey
	}
	if has(OptRNRTimeout) {
		d.MinRNRNak = c.MinRNRNak
	}
	if has(OptSRAMax) {
		d.LogSRAMax = c.LogSRAMax
	}
	if has(OptRRAMax) {
		d.LogRRAMax = c.LogRRAMax
	}
	if has(OptPMState) {
		d.PMState = c.PMState
	}
	if has(OptAltPath) {
		d.Alternate = c.Alternate
	}
	if has(OptPath) {
		d.Primary = c.Primary
	}
	if has(OptRetryCount) {
		d.RetryCount = c.RetryCount
	}
	if has(OptRNRRetry) {
		d.RNRRetry = c.RNRRetry
	}
	if has(OptAckTimeout) {
		d.Primary.AckTimeout = c.Primary.AckTimeout
	}
	if has(OptCounterSet) {
		d.CounterSet = c.CounterSet
	}
	if has(OptDCKey) {
		d.DCAccessKey = c.DCAccessKey
	}
}

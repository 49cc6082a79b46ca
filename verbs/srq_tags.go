package verbs

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/provider"
)

// TagMatching has the sizes of an SRQ's list of tags (struct ibv_tm_cap).
type TagMatching struct {
	MaxTags int // tags in the list, up to TMCaps.MaxNumTags
	MaxOps  int // operations in flight, up to TMCaps.MaxOps
}

// A TagOpcode is an operation on an SRQ's list of tags (enum ibv_ops_wr_opcode).
type TagOpcode uint32

const (
	TagAdd    TagOpcode = provider.TagAdd    // append a tag with its buffer
	TagDelete TagOpcode = provider.TagDelete // remove a tag; WCTagErr if a message has matched it
	TagSync   TagOpcode = provider.TagSync   // report TagOp.Unexpected to the device
)

// TagFlags modify an operation (enum ibv_ops_flags).
type TagFlags uint32

const (
	// TagSignaled requests a completion. The completion of a later operation frees the
	// slots of unsignaled ones.
	TagSignaled TagFlags = provider.TagSignaled
	// TagCount reports TagOp.Unexpected to the device.
	TagCount TagFlags = provider.TagCount
)

// A TagOp is an operation on an SRQ's list of tags (struct ibv_ops_wr).
type TagOp struct {
	WRID       uint64    // returned in the operation's completion
	Op         TagOpcode // TagAdd, TagDelete or TagSync
	Flags      TagFlags  // zero or more flags
	Unexpected uint32    // with TagCount: the number of unexpected messages that the program has handled so far
	Handle     uint32    // the tag to delete; PostTagOps sets it for an added tag

	// of TagAdd
	RecvWRID  uint64 // returned in the completion of the matching message
	Buffer    SGE    // for the message, without its header
	Tag, Mask uint64 // a message matches if its tag equals Tag in the bits of Mask
}

// TagHeaderSize is the length of a TagHeader in a message, and of a TagSource.
const TagHeaderSize = 16

// A TagHeaderOp is the kind of a message to an SRQ that matches tags (enum ibv_tmh_op).
type TagHeaderOp uint8

const (
	TagHeaderNone       TagHeaderOp = 0 // the message has no tag and goes to a receive
	TagHeaderRendezvous TagHeaderOp = 1 // a TagSource follows, from which the device reads the data
	TagHeaderFinish     TagHeaderOp = 2 // the device has read the data of a TagSource
	TagHeaderEager      TagHeaderOp = 3 // the data follows
)

// A TagHeader begins each message to an SRQ that matches tags (struct ibv_tmh). A tag's
// buffer receives only the data after it.
type TagHeader struct {
	Op      TagHeaderOp // the kind of message
	Context uint32      // returned in the receiver's WCEx.TagContext
	Tag     uint64      // matched against the receiver's tags
}

// Append appends the encoded header.
func (h TagHeader) Append(b []byte) []byte {
	b = append(b, byte(h.Op), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.Context)
	return binary.BigEndian.AppendUint64(b, h.Tag)
}

// ParseTagHeader returns the header of a message, and the rest of the message. ok is false
// if the message is too short.
func ParseTagHeader(message []byte) (h TagHeader, rest []byte, ok bool) {
	if len(message) < TagHeaderSize {
		return h, nil, false
	}
	return TagHeader{
		Op:      TagHeaderOp(message[0]),
		Context: binary.BigEndian.Uint32(message[4:]),
		Tag:     binary.BigEndian.Uint64(message[8:]),
	}, message[TagHeaderSize:], true
}

// A TagSource is the memory with a message's data, for TagHeaderRendezvous (struct ibv_rvh).
// The device of the receiver reads it, and then sends a TagHeader with TagHeaderFinish, for
// which the sender must have a receive posted.
type TagSource struct {
	Remote Remote // where the memory is
	Length uint32 // of the data, in bytes
}

// Append appends the encoded source.
func (s TagSource) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, s.Remote.Addr)
	b = binary.BigEndian.AppendUint32(b, s.Remote.RKey)
	return binary.BigEndian.AppendUint32(b, s.Length)
}

// check checks the sizes against the device's limits.
func (t TagMatching) check(op string, o *SRQOptions, limits *DeviceAttr) error {
	switch tm := limits.TM; {
	case t == TagMatching{}:
		return nil
	case o.XRCD != nil:
		return invalid(op, "an XRC SRQ doesn't match tags")
	case tm.MaxNumTags == 0:
		return opErr(op, "tag matching", ErrNotSupported)
	case t.MaxTags < 1 || t.MaxTags > int(tm.MaxNumTags):
		return invalid(op, "TagMatching.MaxTags %d is not in 1 to %d", t.MaxTags, tm.MaxNumTags)
	case t.MaxOps < 1 || t.MaxOps > int(tm.MaxOps):
		return invalid(op, "TagMatching.MaxOps %d is not in 1 to %d", t.MaxOps, tm.MaxOps)
	}
	return nil
}

// operate creates the QP for operations on the list of tags: an RC QP that is connected to itself.
func (srq *SRQ) operate(op string, pd *PD, o *SRQOptions) error {
	tags, ok := srq.prov.(provider.TagMatcher)
	if !ok {
		return opErr(op, "tag matching", ErrNotSupported)
	}
	qp, err := pd.createQP(op, QPOptions{
		Type: RC, SendCQ: o.CQ, RecvCQ: o.CQ, SRQ: srq, SingleOwner: o.SingleOwner,
		Cap: QPCap{MaxSendWR: o.TagMatching.MaxOps, MaxSendSGE: 1},
	}, nil)
	if err != nil {
		return err
	}
	gid, err := srq.dev.FindGID(GIDSelector{Port: 1})
	if err == nil {
		var self Endpoint
		if self, err = qp.Endpoint(gid); err == nil {
			err = qp.Connect(self, ConnectOptions{})
		}
	}
	if err != nil {
		qp.Close()
		return err
	}
	tags.Operate(qp.prov)
	srq.tags, srq.tagQP = tags, qp
	return nil
}

// endTags closes the QP for tag operations. It keeps the QP if other QPs use the SRQ, which
// then can't be closed.
func (srq *SRQ) endTags() error {
	srq.mu.Lock()
	qp := srq.tagQP
	if qp != nil && !qp.closed() && srq.holds.Load() > 1 {
		srq.mu.Unlock()
		return opErr("destroy SRQ", srq.kind.String(), srq.busy())
	}
	tags := srq.tags
	srq.tags = nil
	srq.mu.Unlock()
	err := qp.Close()
	if err != nil {
		srq.mu.Lock()
		srq.tags = tags
		srq.mu.Unlock()
	}
	return err
}

// PostTagOps posts operations on the SRQ's list of tags (ibv_post_srq_ops), in order and with one
// doorbell, and sets the Handle of each TagAdd in ops. It returns how many were posted. If it
// returns an error, ops[n] was refused. The SRQ must have been created with
// SRQOptions.TagMatching; completions go to its CQ.
//
// Each message to the SRQ begins with a TagHeader. The oldest tag in the list that matches a
// message leaves the list. The message's data goes to the tag's buffer, and the completion,
// WCTagRecv with the tag's RecvWRID, has WCTagMatched and WCTagData. The data of a
// rendezvous arrives later: then a second completion has WCTagData. A message without a
// match is unexpected. It goes to a receive as a whole, with WCTagRecv and neither flag.
//
// An unexpected message may be meant for a tag that is about to be added. So after it, added
// tags match nothing until the device knows that the program has handled the message.
// TagCount, in any operation, reports the number of handled messages. WCTagSyncNeeded asks
// for this report.
//
// If the error matches ErrQueueFull, poll completions first.
func (srq *SRQ) PostTagOps(ops []TagOp) (n int, err error) {
	if srq == nil {
		return 0, &OpError{Op: "post SRQ operation", Err: errNil}
	}
	posting()
	srq.mu.Lock()
	defer srq.mu.Unlock()
	switch {
	case srq.prov == nil:
		return 0, errPostTagsClosed
	case srq.dev.removal.gone.Load():
		return 0, errPostTagsRemoved
	case srq.tags == nil:
		return 0, errNoTags
	}
	for n < len(ops) && ops[n].Flags&^(TagSignaled|TagCount) == 0 {
		n++
	}
	all := n == len(ops)
	if n, err = srq.tags.PostTagOps(as[provider.TagOp](ops[:n])); err != nil {
		return n, tagRefusals.wrap(err)
	}
	if !all {
		return n, errTagFlags
	}
	return n, nil
}

var (
	tagRefusals = newRefusals("post SRQ operation")

	errPostTagsClosed  = opErr("post SRQ operation", "", ErrClosed)
	errPostTagsRemoved = opErr("post SRQ operation", "", ErrDeviceRemoved)
	errNoTags          = invalid("post SRQ operation", "the SRQ was made without SRQOptions.TagMatching")
	errTagFlags        = invalid("post SRQ operation", "unknown flags")
)

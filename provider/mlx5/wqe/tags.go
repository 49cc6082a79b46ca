package wqe

// Operations on the list of tags of an SRQ (MLX5_TM_OPCODE_*), and their flags
// (MLX5_SRQ_FLAG_TM_*).
const (
	TagsNop    = 0
	TagsAppend = 1
	TagsRemove = 2

	TagsCount  = 1 << 6 // the segment has the count of unexpected messages
	TagsReport = 1 << 7 // request a completion
)

// TagOp writes the first segment of an operation (struct mlx5_wqe_tm_seg). index is the tag
// to remove or, for an append, the tag for the next append.
func (s *Segment) TagOp(op, flags uint8, index, count uint16) {
	s[0], s[1] = be64(uint64(op)<<60|uint64(flags)<<48|uint64(index)<<32|uint64(count)), 0
}

// Tag writes the second segment of an operation.
func (s *Segment) Tag(tag, mask uint64) {
	s[0], s[1] = be64(tag), be64(mask)
}

// A TagEvent is a CQE's report about tags (MLX5_CQE_APP_OP_TM_*).
type TagEvent uint8

const (
	TagConsumed        TagEvent = 0x1 // a message matched, its data will follow
	TagExpected        TagEvent = 0x2 // the data of a consumed message has arrived
	TagUnexpected      TagEvent = 0x3 // a message matched no tag
	TagNone            TagEvent = 0x4 // a message has no tag
	TagAppended        TagEvent = 0x5
	TagRemoved         TagEvent = 0x6
	TagSynced          TagEvent = 0x7
	TagConsumedHeader  TagEvent = 0x9 // a message matched, its data is to be fetched
	TagConsumedMessage TagEvent = 0xa // a message matched, and its data has arrived
	TagFetch           TagEvent = 0xb // as TagConsumedHeader, and no event will follow
	TagCanceled        TagEvent = 0xc
)

const tagMatching = 1 // value of a CQE's app

// AboutTags reports whether the CQE belongs to an SRQ that matches tags.
func (c *CQE) AboutTags() bool { return uint8(c.app) == tagMatching }

// TagEvent returns the event that such a CQE reports, and the tag's index.
func (c *CQE) TagEvent() (event TagEvent, index uint16) {
	v := be32(c.app)
	return TagEvent(v >> 16), uint16(v)
}

// TagResult returns whether an operation succeeded, and the device's count of unexpected
// messages at that time.
func (c *CQE) TagResult() (ok bool, count uint16) {
	v := be64(c.head[0])
	return v>>63 != 0, uint16(v >> 16)
}

// TagHeader returns the tag of a message that matched, and the sender's word beside it.
func (c *CQE) TagHeader() (tag uint64, context uint32) {
	return be64(c.head[1]), uint32(be64(c.head[0]))
}

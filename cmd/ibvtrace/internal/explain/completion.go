package explain

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/tracing/event"
	"github.com/goverbs/goverbs/uapi"
)

// broken explains the first failed completion of a poll: its status and the vendor's error in words,
// the operation, and the QP with its peer. It returns "" if none has failed.
func (x *Explainer) broken(e *event.Event) string {
	status, n := e.Broken()
	if status == "" {
		return ""
	}
	f := x.files[e.File]
	if f.flushed(event.Find(e.Out, "wc").Elems) == n {
		return event.NoError + "flushed, as the program has put the queue pair into the error state"
	}
	why := status + ": " + meaning(status)
	for _, wc := range event.Find(e.Out, "wc").Elems {
		if s := event.Find(wc.Fields, "status"); s != nil && s.Str == status {
			return why + vendorMeaning(e.Driver, wc.Fields) + f.whose(wc.Fields)
		}
	}
	return why
}

// flushed returns how many completions are of requests that were flushed because the program has put
// their QPs into the error state, as at the end of a connection.
func (f *file) flushed(wcs []event.Value) int {
	n := 0
	for _, wc := range wcs {
		if s := event.Find(wc.Fields, "status"); s != nil && s.Str == "WR_FLUSH_ERR" {
			if _, q := f.numbered(event.Find(wc.Fields, "qp_num")); q != nil && q.known && q.qpState == uapi.IB_QPS_ERR {
				n++
			}
		}
	}
	return n
}

// numbered returns the QP with a number.
func (f *file) numbered(number *event.Value) (id, *object) {
	if f == nil || number == nil {
		return id{}, nil
	}
	for k, o := range f.objects {
		if k.kind == "qp" && o.number == number.Num {
			return k, o
		}
	}
	return id{}, nil
}

// meaning explains a completion's status.
func meaning(status string) string {
	for _, v := range uapi.EnumIbvWcStatus.Values {
		if uapi.EnumIbvWcStatus.Short(v.Value) == status {
			return uapi.WCMeaning(uapi.IbWcStatus(v.Value))
		}
	}
	return uapi.WCMeaning(uapi.IB_WC_GENERAL_ERR)
}

// vendorErrs has the meanings of vendor_err by driver. Those of MLX5 are not documented: these are
// the ones with which adapters report each status. Those of EFA are enum efa_io_comp_status. RXE
// and SIW have none.
var vendorErrs = map[string]map[uint64]string{
	"MLX5": {
		0x51: "a local buffer's key, range or memory was refused",
		0x81: "no acknowledgement after all retries",
		0x87: "receiver not ready after all retries",
		0x88: "the peer's NAK says remote access error",
		0x89: "the peer's NAK says remote operational error",
		0x8a: "the peer's NAK says invalid request",
		0x93: "a page of the receive's buffer was missing",
		0xf9: "flushed",
	},
	"EFA": {
		1: "flushed", 2: "internal error of the queue pair", 3: "the operation is not supported", 4: "the address handle is not valid",
		5: "a local buffer's key is not valid", 6: "the local length is wrong", 7: "the remote address or key is not valid",
		8: "the peer's queue pair was reset", 9: "the peer has no queue pair of this number", 10: "receiver not ready",
		11: "the message doesn't fit the peer's receive", 12: "the peer's response was not understood", 13: "the peer didn't answer",
		14: "the peer has no address handle of this device", 15: "the peer can't be reached", 18: "the peer lacks a feature that the request takes",
	},
}

// vendorMeaning returns a completion's vendor_err in words, or "".
func vendorMeaning(driver string, wc []event.Field) string {
	v := event.Find(wc, "vendor_err")
	if v == nil || vendorErrs[driver][v.Num] == "" {
		return ""
	}
	return fmt.Sprintf("; vendor error %#x: %s", v.Num, vendorErrs[driver][v.Num])
}

// whose returns the operation of a failed completion, its QP, and the QP's peer, as far as they are
// known.
func (f *file) whose(wc []event.Field) string {
	k, o := f.numbered(event.Find(wc, "qp_num"))
	if o == nil {
		return ""
	}
	out := fmt.Sprintf("; qp %d", k.handle)
	if op := o.operation(event.Find(wc, "wr_id")); op != "" {
		out = fmt.Sprintf("; %s on qp %d", op, k.handle)
	}
	if o.peer != "" {
		out += ", whose peer is " + o.peer
	}
	return out
}

// A post is a work request that was posted.
type post struct {
	id uint64
	op string
}

// maxPosts bounds the posts that are remembered of a QP.
const maxPosts = 256

// posted remembers work requests that were posted to the QP.
func (o *object) posted(e *event.Event) {
	wrs := event.Find(e.Args, "wr")
	if wrs == nil {
		return
	}
	for _, wr := range wrs.Elems {
		id, op := event.Find(wr.Fields, "wr_id"), event.Find(wr.Fields, "opcode")
		if id == nil {
			continue
		}
		if len(o.posts) == maxPosts {
			o.posts = append(o.posts[:0], o.posts[maxPosts/2:]...)
		}
		p := post{id.Num, "RECV"}
		if op != nil {
			p.op = op.Str
		}
		o.posts = append(o.posts, p)
	}
}

// operation returns the operation of the work requests with an ID, or "" if there are several: sends
// and receives may have the same IDs.
func (o *object) operation(id *event.Value) string {
	op := ""
	for _, p := range o.posts {
		switch {
		case id == nil || p.id != id.Num:
		case op == "":
			op = p.op
		case op != p.op:
			return ""
		}
	}
	return op
}

// peerOf describes the peer that a modify_qp connects to, or returns "".
func peerOf(args []event.Field) string {
	number := event.Find(args, "dest_qp_num")
	if number == nil {
		return ""
	}
	peer := fmt.Sprintf("qpn %#x", number.Num)
	dest := event.Find(args, "dest")
	if dest == nil {
		return peer
	}
	if gid, global := event.Find(dest.Fields, "dgid"), event.Find(dest.Fields, "is_global"); gid != nil && (global == nil || global.Num != 0) {
		return peer + " at " + gid.Str
	}
	if lid := event.Find(dest.Fields, "dlid"); lid != nil {
		return fmt.Sprintf("%s at LID %d", peer, lid.Num)
	}
	return peer
}

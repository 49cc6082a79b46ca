package verbs

import (
	"bytes"
	"testing"
)

// The bytes are those of struct ibv_tmh and struct ibv_rvh.
func TestTagHeader(t *testing.T) {
	h := TagHeader{Op: TagHeaderRendezvous, Context: 0x01020304, Tag: 0x1112131415161718}
	source := TagSource{Remote: Remote{Addr: 0x2122232425262728, RKey: 0x31323334}, Length: 0x41424344}
	message := source.Append(h.Append(nil))
	want := []byte("\x01\x00\x00\x00\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24\x25\x26\x27\x28\x31\x32\x33\x34\x41\x42\x43\x44")
	if !bytes.Equal(message, want) {
		t.Errorf("%x, want %x", message, want)
	}
	if got, rest, ok := ParseTagHeader(message); !ok || got != h || !bytes.Equal(rest, want[TagHeaderSize:]) {
		t.Errorf("parsed %+v, %x, %v", got, rest, ok)
	}
	if _, _, ok := ParseTagHeader(message[:TagHeaderSize-1]); ok {
		t.Error("parsed a header that is cut off")
	}
}

// The names are libibverbs's.
func TestTagNames(t *testing.T) {
	for want, got := range map[string]interface{ String() string }{
		"TM_ERR": WCTagErr, "TM_RNDV_INCOMPLETE": WCTagIncomplete, "GENERAL_ERR": WCGeneralErr,
		"TM_ADD": WCTagAdd, "TM_DEL": WCTagDelete, "TM_SYNC": WCTagSync, "TM_RECV": WCTagRecv, "TM_NO_TAG": WCNoTag,
		"TM_MATCH|TM_DATA_VALID": WCTagMatched | WCTagData, "WITH_IMM|TM_SYNC_REQ": WCWithImm | WCTagSyncNeeded, "WITH_IMM": WCWithImm,
		"TAG": WCFieldTag,
	} {
		if got.String() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if got, want := WCFlags(0).String(), "0"; got != want {
		t.Errorf("no flags: %q", got)
	}
}

func TestTagOpsOfNobody(t *testing.T) {
	var srq *SRQ
	if n, err := srq.PostTagOps([]TagOp{{}}); n != 0 || err == nil {
		t.Error(n, err)
	}
	if n, err := new(SRQ).PostTagOps([]TagOp{{}}); n != 0 || err == nil {
		t.Error(n, err)
	}
}

package objects

import (
	"strings"
	"testing"
)

// TestCQOfSRQ: an object of one class may name one of another.
func TestCQOfSRQ(t *testing.T) {
	entry := join(nla(nlSRQN, u32(9)), nla(nlType, []byte{1}), nla(nlPDN, u32(11)), nla(nlCQN, u32(0x21)), nla(nlPID, u32(332)))
	all, err := parseTable(message("srq", entry), classNamed("srq"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := WriteTree(&b, all); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), " cq=33") {
		t.Error(b.String())
	}
}

package recorder

import (
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

// TestHead: a message that is shorter than its header, longer than a recorder takes, or
// ends within an attribute is no record; nor is more data than there is room.
func TestHead(t *testing.T) {
	known := table(uapi.RDMA_DRIVER_RXE)
	for name, spoil := range map[string]func(s *slot){
		"nothing":          func(s *slot) { s.head = 0 },
		"half a header":    func(s *slot) { s.head = headBytes - attrBytes },
		"too many":         func(s *slot) { s.head = maxHead + attrBytes },
		"half an attr":     func(s *slot) { s.head = headBytes + attrBytes/2 },
		"too much in":      func(s *slot) { s.in = dataBytes },
		"too much wanted":  func(s *slot) { s.want = dataBytes },
		"more than wanted": func(s *slot) { s.out = s.want + 1 },
	} {
		s := aSlot()
		spoil(&s)
		if r, ok := s.record(42<<phaseShift|phaseEnded, known); ok {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A libraryMutant is a mistake of the library: a text of one of its files, and its
// replacement when ibv is built. The adapter makes no mistake meanwhile.
//
// Two kinds of mistakes are left out: missing barriers, which have no effect on an emulated
// processor, and mistakes that the adapter itself finds, such as a doorbell before its
// record. The adapter ends the virtual machine then.
type libraryMutant struct {
	name, means    string
	file, old, new string
}

var library = []libraryMutant{
	{"lib-cq-mask", "the IDs of sends are looked up with a ring half as long", "provider/mlx5/poll.go", "	return &s.slots[at]\n", "	slot := s.slots[at]\n	slot.id = s.slots[at&(s.mask>>1)].id\n	return &slot\n"},
	{"lib-cq-round", "the owner bit changes after two rounds", "provider/mlx5/cq.go", "return i >> (r.log & 31) }", "return i >> ((r.log + 1) & 31) }"},
	{"lib-cq-index", "the consumer index is not written", "provider/mlx5/poll.go", "memorder.StoreRelease(&q.record[cqIndexRecord], swap32(q.next&0xffffff))\n", ""},
	{"lib-cq-resize", "the last completion is not copied when a CQ is resized", "provider/mlx5/cq.go", "i != end; i++ {", "i+1 < end; i++ {"},
	{"lib-cq-arm", "a CQ is armed with the index before the last poll's", "provider/mlx5/cq.go", "command := events&3<<28 | q.next&0xffffff", "command := 0&events<<28 | q.next&0xffffff"},
	{"lib-compress", "compressed completions are expanded in the wrong order", "provider/mlx5/compress.go", "at := first + k", "at := first + k ^ 1"},
	{"lib-wrap", "the part of a request behind the ring's end is not written", "provider/mlx5/send.go", "	copy(s.ring, s.spare[rest:n])\n", "	_ = rest\n"},
	{"lib-fence", "fences are left out", "provider/mlx5/send.go", "	return flags\n}\n\nfunc (s *sendQueue) setFence", "	return flags &^ wqe.CtrlFence\n}\n\nfunc (s *sendQueue) setFence"},
	{"lib-fence-short", "fences are left out of requests of one piece", "provider/mlx5/short.go", "s.flags[wr.Flags&7]", "s.flags[wr.Flags&6]"},
	{"lib-recv-end", "a receive of fewer pieces than the last in its place has no end", "provider/mlx5/recv.go", "			w[i&(maxSegments-1)].End()\n", ""},
	{"lib-recv-mask", "the IDs of receives wrap one too early", "provider/mlx5/recv.go", "r.ids[at] = wr.WRID", "r.ids[at&(r.mask>>1)] = wr.WRID"},
	{"lib-srq-end", "a shared receive of fewer pieces than the last in its place has no end", "provider/mlx5/srq.go", "		segs[n].End()\n", ""},
	{"lib-srq-count", "the last shared receive is not shown", "provider/mlx5/srq.go", "swap32(uint32(s.posted))", "swap32(uint32(s.posted-1))"},
	{"lib-srq-list", "shared receives are returned one place too early", "provider/mlx5/srq.go", "	s.tail = i\n}", "	s.tail = s.queue[s.first]\n}"},
	{"lib-imm", "requests of one piece have no immediate data", "provider/mlx5/short.go", "length: 1, imm: all}", "length: 1}"},
	{"lib-inline-length", "inline data is one byte short", "provider/mlx5/short.go", "copyBytes(unsafe.Add(unsafe.Pointer(data), wqe.InlineHeader), unsafe.Pointer(unsafe.SliceData(wr.Inline)), length)", "copyBytes(unsafe.Add(unsafe.Pointer(data), wqe.InlineHeader), unsafe.Pointer(unsafe.SliceData(wr.Inline)), length-1)"},
	{"lib-send-full", "a send queue takes a request too many", "provider/mlx5/send.go", "room := s.limit - (posted", "room := s.limit + 1 - (posted"},
	{"lib-recv-full", "a receive queue takes a receive too many", "provider/mlx5/recv.go", "room := r.limit - (posted", "room := r.limit + 1 - (posted"},
	{"lib-done", "a completion makes room for one request less", "provider/mlx5/poll.go", "slot.posted", "slot.posted-1"},
	{"lib-owner", "the owner bit of a completion is not looked at", "provider/mlx5/wqe/cqe.go", "return (uint32(t)^round<<24)&tailOwner == 0 && t", "return t"},
	{"lib-resize-next", "after a CQ is resized, polling goes on one too early", "provider/mlx5/cq.go", "q.seek(q.next + 1)", "q.seek(q.next)"},
	{"lib-forget", "completions of a closed queue pair stay", "provider/mlx5/cq.go", "if q.belongsTo(e, gone) {", "if false && q.belongsTo(e, gone) {"},
	{"lib-compare-swap", "compare and swap has its operands exchanged", "provider/mlx5/send.go", "w[n+1].Atomic(wr.Swap, wr.Compare)\n		} else {", "w[n+1].Atomic(wr.Compare, wr.Swap)\n		} else {"},
	{"lib-masks", "masked compare and swap has its masks exchanged", "provider/mlx5/send.go", "w[n+2].Atomic(wr.SwapMask, wr.CompareMask)", "w[n+2].Atomic(wr.CompareMask, wr.SwapMask)"},
	{"lib-invalidate", "sends with invalidate have no key", "provider/mlx5/send.go", "wr.Imm&op.imm|wr.InvalidateRKey&op.key", "wr.Imm&op.imm"},
	{"lib-bind-length", "windows are one byte short", "provider/mlx5/send.go", "Len: wr.Bind.Length,", "Len: wr.Bind.Length - 1,"},
	{"lib-bind-key", "windows get the key after theirs", "provider/mlx5/send.go", "Key: uint8(wr.NewRKey)", "Key: uint8(wr.NewRKey + 1)"},
	{"lib-empty-piece", "pieces of no bytes are not left out of sends", "provider/mlx5/send.go", "if sge := &sgl[j]; sge.Length != 0 {", "if sge := &sgl[j]; sge.Length != 1<<31 {"},
	{"lib-inline-segments", "the last segment of inline data in a batch isn't counted", "provider/mlx5/send.go", "i += uint32(wqe.InlineSegments(length))", "i += uint32(wqe.InlineSegments(length)) - 1"},
	{"lib-qkey", "the Q_Key is in the wrong half of its word", "provider/mlx5/wqe/av.go", "uint64(qkey) << 32", "uint64(qkey)"},
	{"lib-srqn", "XRC requests name the next SRQ", "provider/mlx5/send.go", "SRQN(wr.RemoteSRQN)", "SRQN(wr.RemoteSRQN + 1)"},
	{"lib-dc-key", "DC requests have the key's upper half in the lower", "provider/mlx5/send.go", "wr.DCKey, wr.RemoteQPN", "wr.DCKey<<32, wr.RemoteQPN"},
	{"lib-source", "a datagram's completion names another sender", "provider/mlx5/poll.go", "w.SrcQP, w.SL, grh = e.Source()\n", "w.SrcQP, w.SL, grh = e.Source()\n	w.SrcQP ^= 1\n"},
	{"lib-read-length", "completions of reads have no length", "provider/mlx5/poll.go", "		w.ByteLen = e.ByteCount()\n", ""},
	{"lib-status", "remote access errors are reported as remote operation errors", "provider/mlx5/poll.go", "return uapi.IB_WC_REM_ACCESS_ERR", "return uapi.IB_WC_REM_OP_ERR"},
	{"lib-error-id", "a failed request is reported with the ID of the one after it", "provider/mlx5/poll.go", "WRID: slot.id, QPNum: e.QPN()}\n", "WRID: s.slots[(tail.Counter()+1)&s.mask].id, QPNum: e.QPN()}\n"},
	{"lib-clock", "the halves of the clock are exchanged", "provider/mlx5/clock.go", "uint64(swap32(h))<<32 | uint64(swap32(l))", "uint64(swap32(l))<<32 | uint64(swap32(h))"},
	{"lib-leak", "PDs are not deallocated", "verbs/pd.go", "func() error { return pd.destroy(ioctl.NewPdDestroy()) }", "func() error { ioctl.NewPdDestroy().Release(); return nil }"},
	{"lib-solicited", "every arming is for solicited completions", "provider/mlx5/cq.go", "	if solicitedOnly {\n		command", "	{\n		command"},
}

// build builds ibv with the mistake, in addition to the correct one.
func (m *libraryMutant) build(folder string) error {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), m.old) {
		return fmt.Errorf("%s: %s doesn't contain %q any more", m.name, m.file, m.old)
	}
	changed := filepath.Join(folder, m.name+".go")
	if err := os.WriteFile(changed, []byte(strings.ReplaceAll(string(text), m.old, m.new)), 0o644); err != nil {
		return err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return err
	}
	list := filepath.Join(folder, m.name+".overlay")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return err
	}
	c := exec.Command("go", "build", "-trimpath", "-overlay", list, "-o", filepath.Join(folder, "ibv-"+m.name), "./cmd/ibv")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: go build: %v\n%s", m.name, err, text)
	}
	return nil
}

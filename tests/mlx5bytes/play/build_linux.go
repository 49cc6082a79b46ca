package main

import (
	"log"

	"github.com/goverbs/goverbs/verbs"
)

// build posts requests with a SendBuilder.
func build(qp *verbs.QP, wrs []verbs.SendWR) (int, error) {
	b := qp.StartSends()
	for i := range wrs {
		buildOne(&b, qp.Type(), &wrs[i])
	}
	return b.Complete()
}

func buildOne(b *verbs.SendBuilder, typ verbs.QPType, wr *verbs.SendWR) {
	b.WRID, b.Flags = wr.WRID, wr.Flags
	switch wr.Opcode {
	case verbs.OpSend:
		b.Send()
	case verbs.OpSendImm:
		b.SendImm(wr.Imm)
	case verbs.OpSendInv:
		b.SendInv(wr.InvalidateRKey)
	case verbs.OpTSO:
		b.SendTSO(wr.Header, wr.MSS)
	case verbs.OpRDMAWrite:
		b.RDMAWrite(wr.Remote.RKey, wr.Remote.Addr)
	case verbs.OpRDMAWriteImm:
		b.RDMAWriteImm(wr.Remote.RKey, wr.Remote.Addr, wr.Imm)
	case verbs.OpRDMARead:
		b.RDMARead(wr.Remote.RKey, wr.Remote.Addr)
	case verbs.OpCompareSwap:
		b.CompareSwap(wr.Remote.RKey, wr.Remote.Addr, wr.Compare, wr.Swap)
	case verbs.OpFetchAdd:
		b.FetchAdd(wr.Remote.RKey, wr.Remote.Addr, wr.Add)
	case verbs.OpLocalInv:
		b.LocalInv(wr.InvalidateRKey)
		return
	case verbs.OpBindMW:
		b.BindMW(wr.MW, wr.NewRKey, wr.Bind)
		return
	default:
		log.Fatalf("a builder has no %v", wr.Opcode)
	}
	switch typ {
	case verbs.UD:
		b.SetUDAddr(wr.AH, wr.RemoteQPN, wr.RemoteQKey)
	case verbs.XRCSend:
		b.SetXRCSRQN(wr.RemoteSRQN)
	case verbs.DCI:
		b.SetDCAddr(wr.AH, wr.RemoteQPN, wr.DCKey)
	}
	switch {
	case wr.Inline != nil:
		b.SetInlineData(wr.Inline)
	case len(wr.SGL) == 1:
		b.SetSGE(wr.SGL[0])
	default:
		b.SetSGEList(wr.SGL)
	}
}

package main

import "github.com/goverbs/goverbs/verbs"

// build posts requests as one batch. It calls the SendBuilder's method for a request where
// there is one.
func build(qp *verbs.QP, wrs []verbs.SendWR) (int, error) {
	return qp.Sends(func(b *verbs.SendBuilder) error {
		for i := range wrs {
			buildOne(b, qp.Type(), &wrs[i])
		}
		return nil
	})
}

func buildOne(b *verbs.SendBuilder, typ verbs.QPType, wr *verbs.SendWR) {
	if len(wr.SGL) != 1 || typ != verbs.RC && typ != verbs.UC {
		b.Add(*wr)
		return
	}
	sge := wr.SGL[0]
	switch wr.Opcode {
	case verbs.OpSend:
		b.Send(wr.WRID, wr.Flags, sge)
	case verbs.OpSendImm:
		b.SendImm(wr.WRID, wr.Flags, wr.Imm, sge)
	case verbs.OpRDMAWrite:
		b.RDMAWrite(wr.WRID, wr.Flags, wr.Remote, sge)
	case verbs.OpRDMAWriteImm:
		b.RDMAWriteImm(wr.WRID, wr.Flags, wr.Remote, wr.Imm, sge)
	case verbs.OpRDMARead:
		b.RDMARead(wr.WRID, wr.Flags, wr.Remote, sge)
	default:
		b.Add(*wr)
	}
}

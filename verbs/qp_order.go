package verbs

import (
	"runtime"

	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uapi"
)

// A DataOrder is the order in which the bytes of a message are written to memory (enum
// ibv_query_qp_data_in_order_caps). A larger value promises more.
type DataOrder uint8

const (
	DataUnordered  DataOrder = DataOrder(provider.DataUnordered)  // nothing is promised
	DataInOrder128 DataOrder = DataOrder(provider.DataInOrder128) // each block of 128 bytes, at an address that is a multiple of 128, is written from its first byte to its last
	DataInOrder    DataOrder = DataOrder(provider.DataInOrder)    // the message is written from its first byte to its last
)

func (o DataOrder) String() string {
	switch o {
	case DataInOrder128:
		return "in order in blocks of 128 bytes"
	case DataInOrder:
		return "in order"
	}
	return "unordered"
}

// DataOrder returns the order in which the data of an operation is written to this side's
// memory (ibv_query_qp_data_in_order): for OpRDMARead, by this QP's own reads; for
// OpRDMAWrite and OpSend, by the peer's writes and sends to this QP. With DataInOrder, a
// goroutine may watch for the last word of a message with package sync/atomic, instead of
// polling for its completion. The order of two messages, and memory with
// AccessRelaxedOrdering, are not covered.
//
// The answer is DataUnordered unless the device promises more, the QP is in QPRTS (a DCT in
// QPRTR), and the processor is an amd64, whose memory keeps the device's order. On mlx5, the
// device's promise is known only if mlx5dv.Open has opened the device for DEVX.
func (qp *QP) DataOrder(of Opcode) (DataOrder, error) {
	const op = "query QP's data order"
	if err := hold(op, qp.base()); err != nil {
		return DataUnordered, err
	}
	defer qp.drop()
	switch of {
	case OpRDMARead, OpRDMAWrite, OpRDMAWriteImm, OpSend, OpSendImm, OpSendInv:
	default:
		return DataUnordered, invalid(op, "%v brings no data to this side: ask for OpRDMARead, OpRDMAWrite or OpSend", of)
	}
	ready := QPRTS
	if qp.typ == DCT {
		ready = QPRTR
	}
	orderer, ok := qp.prov.(provider.Orderer)
	if !ok || qp.State() != ready || runtime.GOARCH != "amd64" {
		return DataUnordered, nil
	}
	order, err := orderer.DataOrder(qp.handle, uapi.IbUverbsWrOpcode(of))
	if err != nil {
		return DataUnordered, qp.dev.failed(op, "", err)
	}
	return DataOrder(order), nil
}

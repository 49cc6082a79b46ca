package mlx5dv

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/verbs"
)

// DCIStreams are the streams of a DCI (struct mlx5dv_dci_streams). Each request names a
// stream, by verbs.SendWR.DCStream. If a request fails because of its memory, the target, or
// the path to it, the adapter flushes only the requests of its stream, and goes on with the
// others. The QP stays in QPRTS, as QP.Query reports. ResetDCIStream ends the stream's error.
//
// The adapter's limits are the fields log_max_dci_stream_channels and
// log_max_dci_errored_streams of QUERY_HCA_CAP: see Command.
type DCIStreams struct {
	LogConcurrent uint8 // the binary logarithm of how many streams the adapter runs at once
	LogErrored    uint8 // the binary logarithm of how many streams in error move the QP to QPErr
}

// maxLogStreams is the largest logarithm that the firmware's QP context can hold.
const maxLogStreams = 31

const (
	changeStream = 1 << 0 // in the second mask

	// In RTS2RTS_QP: the byte whose highest bit says that there is an extension, and the offset
	// of the stream in the extension.
	extensionFlagAt = 8
	streamAt        = 272 + 2
)

// ResetDCIStream ends the error of a DCI's stream (mlx5dv_dci_stream_id_reset), so that it takes
// requests again. All of the stream's requests must have completed. The QP must be in QPRTS, and
// its device must have been opened with Open.
func ResetDCIStream(qp *verbs.QP, stream uint16) error {
	const op = "reset DCI stream"
	if qp.Type() != verbs.DCI && qp.Type() != 0 {
		return invalid(op, "the QP is %v: only %v has streams", qp.Type(), verbs.DCI)
	}
	return toRTSAgain(op, qp, func(in []byte) {
		in[extensionFlagAt] |= 0x80
		binary.BigEndian.PutUint64(in[moreMaskAt:], changeStream)
		binary.BigEndian.PutUint16(in[streamAt:], stream)
	})
}

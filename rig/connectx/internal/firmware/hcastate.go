package firmware

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/rig/connectx/internal/ifc"
)

func (h *HCA) enableHCA(in, out ifc.View) Status {
	if in.Get("function_id") != 0 {
		return BadParam
	}
	h.enabled = true
	return OK
}

func (h *HCA) disableHCA(in, out ifc.View) Status {
	if h.initialized {
		return BadSysState
	}
	h.enabled = false
	h.resetCapabilities()
	clear(h.pages)
	return OK
}

func (h *HCA) initHCA(in, out ifc.View) Status {
	if h.initialized {
		return BadSysState
	}
	if len(h.pages) < bootPages+initPages {
		return NoRes
	}
	h.initialized = true
	return OK
}

// teardownHCA destroys everything that the driver left.
func (h *HCA) teardownHCA(in, out ifc.View) Status {
	h.clear()
	return OK
}

// ISSI 1 makes drivers use the commands of RMPs and XRC SRQs for SRQs.
func (h *HCA) queryISSI(in, out ifc.View) Status {
	out.Set("current_issi", 1)
	out.Set("supported_issi_dw0", 1<<1)
	return OK
}

func (h *HCA) setISSI(in, out ifc.View) Status {
	if in.Get("current_issi") != 1 {
		return BadParam
	}
	return OK
}

// boardID is the board_id that ibv_devinfo prints, 16 characters.
const boardID = "GOVERBS_HCA"

func (h *HCA) queryAdapter(in, out ifc.View) Status {
	out.Set("query_adapter_struct.ieee_vendor_id", 0x0002c9)
	copy(out.Bytes("query_adapter_struct.vsd_contd_psid"), boardID)
	return OK
}

// The number of pages that the firmware requests: only a few, to exercise the protocol.
const (
	bootPages = 4
	initPages = 12
)

func (h *HCA) queryPages(in, out ifc.View) Status {
	const boot, initialize, regular = 1, 2, 3
	switch in.Get("op_mod") {
	case boot:
		out.Set("num_pages", bootPages)
	case initialize:
		out.Set("num_pages", initPages)
	case regular:
	default:
		return BadParam
	}
	return OK
}

func (h *HCA) managePages(in, out ifc.View) Status {
	const noPages, give, take = 0, 1, 2
	n := in.Get("input_num_entries")
	switch in.Get("op_mod") {
	case noPages:
	case give:
		pages := in.Bytes("pas")
		if n > uint64(len(pages)/8) {
			return BadInLen
		}
		for ; n > 0; n-- {
			page := binary.BigEndian.Uint64(pages)
			pages = pages[8:]
			if page%PageSize != 0 || h.pages[page] {
				return BadParam
			}
			h.pages[page] = true
		}
	case take:
		pages := out.Bytes("pas")
		n = min(n, uint64(len(pages)/8))
		var taken uint64
		for page := range h.pages {
			if taken == n {
				break
			}
			binary.BigEndian.PutUint64(pages[8*taken:], page)
			delete(h.pages, page)
			taken++
		}
		out.Set("output_num_entries", taken)
	default:
		return BadParam
	}
	return OK
}

package diags

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/cmd/ibv/internal/stranger"
	"github.com/goverbs/goverbs/monitor"
)

// A field is a part of an attribute: its name, place, and format. Bits are counted from
// the most significant bit of the first byte.
type field struct {
	name         string
	offset, bits int
	text         func(f field, v uint64) string
}

// value reads the field. Bits beyond the end of the data are 0.
func (f field) value(b []byte) uint64 {
	var v uint64
	for i := f.offset; i < f.offset+f.bits; i++ {
		v <<= 1
		if i/8 < len(b) {
			v |= uint64(b[i/8] >> (7 - i%8) & 1)
		}
	}
	return v
}

// put writes the field.
func (f field) put(b []byte, v uint64) {
	for i := f.offset + f.bits - 1; i >= f.offset; i-- {
		mask := byte(0x80) >> (i % 8)
		b[i/8] &^= mask
		if v&1 != 0 {
			b[i/8] |= mask
		}
		v >>= 1
	}
}

// labelled returns a line: a name, dots up to a column, and a value.
func labelled(name, value string) string {
	return name + ":" + strings.Repeat(".", max(0, 32-len(name))) + value + "\n"
}

// write writes the lines of all fields, each after the indent. Keys are only shown if it is asked for. Their JSON has
// other values before.
func write(w io.Writer, indent string, fields []field, b []byte, keys bool, before ...any) {
	object := before
	for _, f := range fields {
		text := f.text(f, f.value(b))
		if f.name == "Mkey" && !keys {
			text = "<not displayed>"
		}
		io.WriteString(w, indent+labelled(f.name, text))
		first, _, _ := strings.Cut(text, "\n")
		object = append(object, f.name, cli.Value(first))
	}
	cli.Put(object...)
}

// find returns the field of this name, which must exist.
func find(fields []field, name string) field {
	for _, f := range fields {
		if f.name == name {
			return f
		}
	}
	panic("diags: no field " + name)
}

func decimal(_ field, v uint64) string { return fmt.Sprint(v) }

// hexadecimal prints all digits that the field's bytes have.
func hexadecimal(f field, v uint64) string { return fmt.Sprintf("0x%0*x", (f.bits+7)/8*2, v) }

// oneOf prints a value's name, or other for values without a name.
func oneOf(other string, names map[uint64]string) func(field, uint64) string {
	return func(_ field, v uint64) string {
		if name, ok := names[v]; ok {
			return name
		}
		return fmt.Sprintf(other, v)
	}
}

// list numbers names from first.
func list(first uint64, names ...string) map[uint64]string {
	all := make(map[uint64]string)
	for i, name := range names {
		all[first+uint64(i)] = name
	}
	return all
}

// alternatives prints the names of the bits that are set. rest has the bits without a name.
func alternatives(v uint64, names ...string) (text string, rest uint64) {
	var chosen []string
	for i, name := range names {
		if v&(1<<i) != 0 {
			chosen = append(chosen, name)
		}
	}
	return strings.Join(chosen, " or "), v >> len(names)
}

// anyOf prints alternatives. Values that are not in allowed are outside the
// specification.
func anyOf(allowed []uint64, names ...string) func(field, uint64) string {
	return func(_ field, v uint64) string {
		text, rest := alternatives(v, names...)
		if v == 0 || rest != 0 {
			if text != "" {
				text += " or "
			}
			return fmt.Sprintf("%sundefined (%d)", text, v)
		}
		for _, a := range allowed {
			if a == v {
				return text
			}
		}
		if allowed != nil {
			text += " (IBA extension)"
		}
		return text
	}
}

// extendedSpeeds prints alternatives, or 0.
func extendedSpeeds(names ...string) func(field, uint64) string {
	return func(f field, v uint64) string {
		if v == 0 {
			return "0"
		}
		const disabled = 30
		if v == disabled && f.bits == 5 {
			return "Extended link speeds disabled"
		}
		text, rest := alternatives(v, names...)
		if rest != 0 {
			if text != "" {
				text += " or "
			}
			return fmt.Sprintf("%sundefined (%d)", text, v)
		}
		return text
	}
}

// capabilities prints a mask, and a line for each bit that has a name.
func capabilities(names map[int]string) func(field, uint64) string {
	return func(f field, v uint64) string {
		text := fmt.Sprintf("%#x", v)
		for bit := range f.bits {
			if name := names[bit]; name != "" && v&(1<<bit) != 0 {
				text += "\n\t\t\t\t" + name
			}
		}
		return text
	}
}

var (
	widths        = []string{"1X", "4X", "8X", "12X", "2X"}
	speeds        = []string{"2.5 Gbps", "5.0 Gbps", "10.0 Gbps"}
	moreSpeeds    = []string{"14.0625 Gbps", "25.78125 Gbps", "53.125 Gbps", "106.25 Gbps"}
	allowedWidths = []uint64{1, 3, 7, 11, 15, 17, 19, 23, 27, 31}
	allowedSpeeds = []uint64{1, 3, 5, 7}
	lanes         = list(1, "VL0", "VL0-1", "VL0-3", "VL0-7", "VL0-14")
	mtus          = oneOf("?(%d)", list(1, "256", "512", "1024", "2048", "4096"))
)

var capabilityNames = map[int]string{
	1: "IsSM", 2: "IsNoticeSupported", 3: "IsTrapSupported", 4: "IsOptionalIPDSupported",
	5: "IsAutomaticMigrationSupported", 6: "IsSLMappingSupported", 7: "IsMKeyNVRAM", 8: "IsPKeyNVRAM",
	9: "IsLedInfoSupported", 10: "IsSMdisabled", 11: "IsSystemImageGUIDsupported",
	12: "IsPkeySwitchExternalPortTrapSupported", 14: "IsExtendedSpeedsSupported",
	15: "IsCapabilityMask2Supported", 16: "IsCommunicatonManagementSupported", 17: "IsSNMPTunnelingSupported",
	18: "IsReinitSupported", 19: "IsDeviceManagementSupported", 20: "IsVendorClassSupported",
	21: "IsDRNoticeSupported", 22: "IsCapabilityMaskNoticeSupported", 23: "IsBootManagementSupported",
	24: "IsLinkRoundTripLatencySupported", 25: "IsClientRegistrationSupported",
	26: "IsOtherLocalChangesNoticeSupported", 27: "IsLinkSpeedWidthPairsTableSupported",
	28: "IsVendorSpecificMadsTableSupported", 29: "IsMcastPkeyTrapSuppressionSupported",
	30: "IsMulticastFDBTopSupported", 31: "IsHierarchyInfoSupported",
}

var capability2Names = map[int]string{
	0: "IsSetNodeDescriptionSupported", 1: "IsPortInfoExtendedSupported", 2: "IsVirtualizationSupported",
	3: "IsSwitchPortStateTableSupported", 4: "IsLinkWidth2xSupported", 5: "IsLinkSpeedHDRSupported",
	6: "IsMKeyProtectBitsExtSupported", 7: "IsEnhancedTrap128Supported", 8: "IsPartitionTopSupported",
	9: "IsEnhancedQoSArbiterSupported", 10: "IsLinkSpeedNDRSupported",
}

var nodeInfo = []field{
	{"BaseVers", 0, 8, decimal},
	{"ClassVers", 8, 8, decimal},
	{"NodeType", 16, 8, oneOf("?(%d)?", list(1, "Channel Adapter", "Switch", "Router"))},
	{"NumPorts", 24, 8, decimal},
	{"SystemGuid", 32, 64, hexadecimal},
	{"Guid", 96, 64, hexadecimal},
	{"PortGuid", 160, 64, hexadecimal},
	{"PartCap", 224, 16, decimal},
	{"DevId", 240, 16, hexadecimal},
	{"Revision", 256, 32, hexadecimal},
	{"LocalPort", 288, 8, decimal},
	{"VendorId", 296, 24, hexadecimal},
}

var portInfo = []field{
	{"Mkey", 0, 64, hexadecimal},
	{"GidPrefix", 64, 64, hexadecimal},
	{"Lid", 128, 16, decimal},
	{"SMLid", 144, 16, decimal},
	{"CapMask", 160, 32, capabilities(capabilityNames)},
	{"DiagCode", 192, 16, hexadecimal},
	{"MkeyLeasePeriod", 208, 16, decimal},
	{"LocalPort", 224, 8, decimal},
	{"LinkWidthEnabled", 232, 8, anyOf(nil, widths...)},
	{"LinkWidthSupported", 240, 8, anyOf(allowedWidths, widths...)},
	{"LinkWidthActive", 248, 8, oneOf("undefined (%d)", map[uint64]string{1: "1X", 2: "4X", 4: "8X", 8: "12X", 16: "2X"})},
	{"LinkSpeedSupported", 256, 4, anyOf(allowedSpeeds, speeds...)},
	{"LinkState", 260, 4, oneOf("?(%d)", list(0, "NoChange", "Down", "Initialize", "Armed", "Active"))},
	{"PhysLinkState", 264, 4, oneOf("?(%d)", list(0, "NoChange", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "PhyTest"))},
	{"LinkDownDefState", 268, 4, oneOf("?(%d)", list(0, "NoChange", "Sleep", "Polling"))},
	{"ProtectBits", 272, 2, decimal},
	{"LMC", 277, 3, decimal},
	{"LinkSpeedActive", 280, 4, oneOf("undefined (%d)", map[uint64]string{0: "Extended speed", 1: speeds[0], 2: speeds[1], 4: speeds[2]})},
	{"LinkSpeedEnabled", 284, 4, anyOf(allowedSpeeds, speeds...)},
	{"NeighborMTU", 288, 4, mtus},
	{"SMSL", 292, 4, decimal},
	{"VLCap", 296, 4, oneOf("?(%d)", lanes)},
	{"InitType", 300, 4, hexadecimal},
	{"VLHighLimit", 304, 8, decimal},
	{"VLArbHighCap", 312, 8, decimal},
	{"VLArbLowCap", 320, 8, decimal},
	{"InitReply", 328, 4, hexadecimal},
	{"MtuCap", 332, 4, mtus},
	{"VLStallCount", 336, 3, decimal},
	{"HoqLife", 339, 5, decimal},
	{"OperVLs", 344, 4, oneOf("?(%d)", list(0, "No change", "VL0", "VL0-1", "VL0-3", "VL0-7", "VL0-14"))},
	{"PartEnforceInb", 348, 1, decimal},
	{"PartEnforceOutb", 349, 1, decimal},
	{"FilterRawInb", 350, 1, decimal},
	{"FilterRawOutb", 351, 1, decimal},
	{"MkeyViolations", 352, 16, decimal},
	{"PkeyViolations", 368, 16, decimal},
	{"QkeyViolations", 384, 16, decimal},
	{"GuidCap", 400, 8, decimal},
	{"ClientReregister", 408, 1, decimal},
	{"McastPkeyTrapSuppressionEnabled", 409, 2, decimal},
	{"SubnetTimeout", 411, 5, decimal},
	{"RespTimeVal", 419, 5, decimal},
	{"LocalPhysErr", 424, 4, decimal},
	{"OverrunErr", 428, 4, decimal},
	{"MaxCreditHint", 432, 16, decimal},
	{"RoundTrip", 456, 24, decimal},
	{"CapabilityMask2", 480, 16, capabilities(capability2Names)},
	{"LinkSpeedExtActive", 496, 4, oneOf("undefined (%d)", map[uint64]string{0: "No Extended Speed", 1: moreSpeeds[0], 2: moreSpeeds[1], 4: moreSpeeds[2], 8: moreSpeeds[3]})},
	{"LinkSpeedExtSupported", 500, 4, extendedSpeeds(moreSpeeds...)},
	{"LinkSpeedExtEnabled", 507, 5, extendedSpeeds(moreSpeeds...)},
	{"LinkSpeedExtActive2", 449, 2, oneOf("undefined (%d)", list(0, "No Extended Speed 2", "212.5 Gbps"))},
	{"LinkSpeedExtSupported2", 451, 2, extendedSpeeds("212.5 Gbps")},
	{"LinkSpeedExtEnabled2", 453, 3, extendedSpeeds("212.5 Gbps")},
}

var portInfoExtended = []field{
	{"CapMask", 0, 32, hexadecimal},
	{"FECModeActive", 32, 16, decimal},
	{"FDRFECModeSupported", 48, 16, hexadecimal},
	{"FDRFECModeEnabled", 64, 16, hexadecimal},
	{"EDRFECModeSupported", 80, 16, hexadecimal},
	{"EDRFECModeEnabled", 96, 16, hexadecimal},
	{"HDRFECModeSupported", 112, 16, hexadecimal},
	{"HDRFECModeEnabled", 128, 16, hexadecimal},
	{"NDRFECModeSupported", 144, 16, hexadecimal},
	{"NDRFECModeEnabled", 160, 16, hexadecimal},
}

var switchInfo = []field{
	{"LinearFdbCap", 0, 16, decimal},
	{"RandomFdbCap", 16, 16, decimal},
	{"McastFdbCap", 32, 16, decimal},
	{"LinearFdbTop", 48, 16, decimal},
	{"DefPort", 64, 8, decimal},
	{"DefMcastPrimPort", 72, 8, decimal},
	{"DefMcastNotPrimPort", 80, 8, decimal},
	{"LifeTime", 88, 5, decimal},
	{"StateChange", 93, 1, decimal},
	{"OptSLtoVLMapping", 94, 2, decimal},
	{"LidsPerPort", 96, 16, decimal},
	{"PartEnforceCap", 112, 16, decimal},
	{"InboundPartEnf", 128, 1, decimal},
	{"OutboundPartEnf", 129, 1, decimal},
	{"FilterRawInbound", 130, 1, decimal},
	{"FilterRawOutbound", 131, 1, decimal},
	{"EnhancedPort0", 132, 1, decimal},
	{"MulticastFDBTop", 144, 16, hexadecimal},
}

var smInfo = []field{
	{"SmInfoGuid", 0, 64, hexadecimal},
	{"SmInfoKey", 64, 64, hexadecimal},
	{"SmActivity", 128, 32, decimal},
	{"SmPriority", 160, 4, decimal},
	{"SmState", 164, 4, decimal},
}

// selection has the first fields of all attributes of performance management.
var selection = []field{
	{"PortSelect", 8, 8, decimal},
	{"CounterSelect", 16, 16, hexadecimal},
}

// counterFields returns the fields of an attribute of performance management, as perfquery prints
// them: the fields that an agent with these capabilities has, and mask, the second mask of counters,
// before the field named second.
func counterFields(attr monitor.PMAAttribute, caps monitor.PMACapabilities, second string, mask field) []field {
	all := selection[:2:2]
	for _, f := range attr.Fields() {
		if caps&f.Needs != f.Needs {
			continue
		}
		if f.Name == second {
			all = append(all, mask)
		}
		all = append(all, field{f.Name, f.Offset, f.Bits, decimal})
	}
	return all
}

// portCounters returns the fields of PortCounters. perfquery also prints counters that the port lacks.
func portCounters() []field {
	return counterFields(monitor.PMACounters, math.MaxUint64, "LocalLinkIntegrityErrors", field{"CounterSelect2", 144, 8, hexadecimal})
}

func extendedCounters(caps monitor.PMACapabilities) []field {
	return counterFields(monitor.PMAExtendedCounters, caps, "SymbolErrorCounter", field{"CounterSelect2", 32, 32, hexadecimal})
}

// cString returns the Text of the bytes up to the first 0.
func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return stranger.Text(string(text))
}

func gid(prefix, guid uint64) (b [16]byte) {
	binary.BigEndian.PutUint64(b[:], prefix)
	binary.BigEndian.PutUint64(b[8:], guid)
	return b
}

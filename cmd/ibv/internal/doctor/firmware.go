package doctor

import (
	"strconv"
	"strings"
)

// mlx5Firmware has the oldest versions that don't count as old, by their first number, which identifies
// the model: the versions that NVIDIA supplied in 2022 (release notes of mlxup 4.20.0,
// "Supported Adapters Cards and Firmware Versions"). For models that ended before, it has
// the last version.
var mlx5Firmware = map[int][2]int{
	10: {16, 1200}, // Connect-IB
	12: {28, 2006}, // ConnectX-4
	14: {32, 1010}, // ConnectX-4 Lx
	16: {33, 1048}, // ConnectX-5
	20: {33, 1048}, // ConnectX-6
	22: {33, 1048}, // ConnectX-6 Dx
	24: {33, 1048}, // BlueField-2
	26: {33, 1048}, // ConnectX-6 Lx
	28: {33, 2028}, // ConnectX-7
}

// firmware notes old firmware. Firmware faults aren't published in a form that can be
// looked up, and the vendor first asks for an upgrade.
func (e *exam) firmware(d *device) {
	file := d.sys + "/fw_ver"
	version := e.host.read(file)
	parts := strings.Split(version, ".")
	if d.driver != "mlx5_core" || len(parts) != 3 {
		return
	}
	var n [3]int
	for i, p := range parts {
		var err error
		if n[i], err = strconv.Atoi(p); err != nil {
			return
		}
	}
	first, known := mlx5Firmware[n[0]]
	if !known || n[1] > first[0] || n[1] == first[0] && n[2] >= first[1] {
		return
	}
	f := e.addTo(d, firmwareOld, "the firmware %s is older than %d.%d.%d", version, n[0], first[0], first[1])
	f.evidence(file, version)
	f.mend("mlxup --query")
	f.Advice = "NVIDIA's mlxup also upgrades it. Cards that other makers sell have their firmware."
}

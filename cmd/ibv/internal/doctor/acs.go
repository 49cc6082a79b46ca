package doctor

import (
	"encoding/binary"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// acs checks the PCIe switches that the card shares with GPUs and NVMe disks. A switch passes data between its ports
// directly, unless the Access Control Services of a port redirect them to the processor.
func (e *exam) acs(d *device) {
	h := e.host
	const pci = "/sys/bus/pci/devices"
	card := strings.Split(h.realDir(d.pci), "/")
	var partners, bridges []string
	var evidence []Evidence
	for _, address := range h.list(pci) {
		class := h.read(path.Join(pci, address, "class"))
		if !slices.ContainsFunc([]string{"0x03", "0x12", "0x0108"}, func(c string) bool { return strings.HasPrefix(class, c) }) {
			continue
		}
		partner := strings.Split(h.realDir(path.Join(pci, address)), "/")
		common := 0
		for common < min(len(card), len(partner)) && card[common] == partner[common] {
			common++
		}
		const bridge = 5 // the first path that has a bridge: "", sys, devices, pci0000:00, 0000:00:06.0
		if common < bridge {
			continue // the processor joins them
		}
		redirected := false
		for _, end := range [][]string{card, partner} {
			for n := common + 1; n < len(end); n++ {
				dir := strings.Join(end[:n], "/")
				config, _ := os.ReadFile(h.path(dir + "/config"))
				control, ok := accessControl(config)
				if !ok {
					e.unseen("%s: whether ACS redirects what goes between it and %s, because only root reads all of %s/config", d.name, address, dir)
				}
				if control&redirects == 0 {
					continue
				}
				redirected = true
				if name := filepath.Base(dir); !slices.Contains(bridges, name) {
					bridges = append(bridges, name)
					evidence = append(evidence, Evidence{dir + "/config", "ACS control 0x" + strconv.FormatUint(uint64(control), 16)})
				}
			}
		}
		if redirected {
			partners = append(partners, address)
		}
	}
	if len(partners) == 0 {
		return
	}
	f := e.addTo(d, pcieACS, "ACS sends what goes between the card and %s through the processor, although a PCIe switch joins them", join(partners))
	f.Evidence = append(f.Evidence, evidence...)
	if t := h.read(d.pci + "/iommu_group/type"); strings.HasPrefix(t, "DMA") {
		f.evidence(d.pci+"/iommu_group/type", t)
		f.Advice = "First iommu=pt: as long as the IOMMU translates addresses, data must pass it."
		return
	}
	for _, b := range bridges {
		f.mend("setpci -s %s ECAP_ACS+6.w=0000", b)
	}
	f.Advice = "It holds until the next boot; the BIOS may have a setting. ACS must stay on if these devices are given to virtual machines: without it, one reaches the other's memory."
}

// redirects are the bits of ACS control that keep a switch from passing requests and completions directly: P2P Request
// Redirect, P2P Completion Redirect, Upstream Forwarding.
const redirects = 1<<2 | 1<<3 | 1<<4

// accessControl returns the ACS Control register of a bridge (PCI Express Base Specification, 7.7.11.3), 0 if it has
// none. It is false if the configuration space can't be read that far.
func accessControl(config []byte) (uint16, bool) {
	const size, first, header, acs = 4096, 0x100, 4, 0x0d
	if len(config) <= first {
		return 0, false
	}
	for at, n := first, 0; at >= first && at+8 <= len(config) && n < (size-first)/header; n++ {
		word := binary.LittleEndian.Uint32(config[at:])
		if word&0xffff == acs {
			return binary.LittleEndian.Uint16(config[at+6:]), true
		}
		at = int(word >> 20)
	}
	return 0, true
}

package doctor

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pcie checks the link of the device's card, and its configuration.
func (e *exam) pcie(d *device) {
	h := e.host
	if d.pci == "" || h.target(d.pci+"/physfn") != "" { // a virtual function has no link
		return
	}
	e.pcieLink(d)
	e.acs(d)
	address := h.pciAddress(d)
	iommu := d.pci + "/iommu_group/type"
	if t := h.read(iommu); strings.HasPrefix(t, "DMA") {
		f := e.addTo(d, iommuTranslates, "the IOMMU translates the card's accesses to memory")
		f.evidence(iommu, t)
		f.Advice = "The kernel's parameter iommu=pt turns that off for the host's own devices."
	}
	config, _ := os.ReadFile(h.path(d.pci + "/config"))
	control, ok := deviceControl(config)
	if !ok {
		e.unseen("%s: MaxReadReq and relaxed ordering, because only root reads all of %s/config", d.name, d.pci)
		return
	}
	value := "device control 0x" + strconv.FormatUint(uint64(control), 16)
	if request := 128 << (control >> 12 & 7); request < 512 {
		f := e.addTo(d, maxReadReq, "the card reads memory in requests of %d bytes at most", request)
		f.evidence(d.pci+"/config", value)
		f.mend("setpci -s %s CAP_EXP+8.w=5000:7000", address)
		f.Advice = "4096 bytes are usual for a fast card."
	}
	if control&0x10 == 0 {
		f := e.addTo(d, relaxedOrdering, "relaxed ordering is off")
		f.evidence(d.pci+"/config", value)
		f.mend("setpci -s %s CAP_EXP+8.w=10:10", address)
		f.Advice = "Some processors turn it off on purpose, because they are faster or only right without."
	}
}

// pciAddress returns the address of the device's card.
func (h *Host) pciAddress(d *device) string {
	if real, err := filepath.EvalSymlinks(h.path(d.pci)); err == nil {
		return filepath.Base(real)
	}
	return ""
}

func (e *exam) pcieLink(d *device) {
	h := e.host
	width, ok1 := h.number(d.pci + "/current_link_width")
	most, ok2 := h.number(d.pci + "/max_link_width")
	speed, most2 := gigaTransfers(h.read(d.pci+"/current_link_speed")), gigaTransfers(h.read(d.pci+"/max_link_speed"))
	if !ok1 || !ok2 || width == 0 || width > 32 || most > 32 || speed == 0 {
		return
	}
	if width >= most && speed >= most2 {
		return
	}
	// The slot's end of the link is the bridge above the card.
	slot := filepath.Dir(h.realDir(d.pci))
	slotWidth, ok := h.number(slot + "/max_link_width")
	slotSpeed := gigaTransfers(h.read(slot + "/max_link_speed"))
	k, why := pcieDegraded, "although the card and its slot can do more"
	if !ok || slotSpeed == 0 {
		k, why = pcieSlot, "although the card can do more"
	} else if width >= min(most, slotWidth) && speed >= min(most2, slotSpeed) {
		k, why = pcieSlot, "because the slot can't do more"
	}
	f := e.addTo(d, k, "the card's PCIe link has %d lanes at %s, %s", width, h.read(d.pci+"/current_link_speed"), why)
	f.evidence(d.pci+"/current_link_width", strconv.Itoa(width)).evidence(d.pci+"/max_link_width", strconv.Itoa(most))
	f.evidence(d.pci+"/current_link_speed", h.read(d.pci+"/current_link_speed")).evidence(d.pci+"/max_link_speed", h.read(d.pci+"/max_link_speed"))
	if k == pcieDegraded {
		f.evidence(slot+"/max_link_width", strconv.Itoa(slotWidth)).evidence(slot+"/max_link_speed", h.read(slot+"/max_link_speed"))
		f.Advice = "Put the card into its slot anew. Check the riser, and the settings of the BIOS for the slot."
	} else {
		f.Advice = "A faster slot, if the host has one."
	}
}

// realDir returns the directory that a path leads to, below the root.
func (h *Host) realDir(path string) string {
	real, err := filepath.EvalSymlinks(h.path(path))
	if err != nil {
		return path
	}
	root, err := filepath.EvalSymlinks(h.Root)
	if err != nil {
		return path
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(real, root), "/")
}

// gigaTransfers parses "16.0 GT/s PCIe". It returns 0 for "Unknown".
func gigaTransfers(s string) float64 {
	number, _, _ := strings.Cut(s, " ")
	n, _ := strconv.ParseFloat(number, 64)
	return n
}

// deviceControl returns the Device Control register of the PCI Express capability
// (PCI Express Base Specification, 7.5.3.4).
func deviceControl(config []byte) (uint16, bool) {
	const pointer, express = 0x34, 0x10
	if len(config) < 256 {
		return 0, false
	}
	for at, n := int(config[pointer]), 0; at >= 0x40 && at+10 <= 256 && n < 48; at, n = int(config[at+1]), n+1 {
		if config[at] == express {
			return binary.LittleEndian.Uint16(config[at+8:]), true
		}
	}
	return 0, false
}

package doctor

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtool runs a command of linux/ethtool.h. The buffer begins with the
// command's number, and the kernel writes into it. The caller must make it as long as the
// command requires.
//
// The unsafe code is safe because the request has the layout of struct ifreq, whose data is
// a pointer. Go keeps the request in place during the system call, because its address
// is converted in the call's arguments. The buffer is on the heap, which doesn't move, and
// KeepAlive keeps it alive.
func ethtool(netDev string, buffer []byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&buffer[0])}
	copy(request.name[:unix.IFNAMSIZ-1], netDev)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(buffer)
	if errno != 0 {
		return errno
	}
	return nil
}

var native = binary.NativeEndian

// Stats runs ETHTOOL_GSTRINGS and ETHTOOL_GSTATS.
func (system) Stats(netDev string) map[string]uint64 {
	const nameLen, statNames = 32, 1 // ETH_GSTRING_LEN, ETH_SS_STATS
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, netDev)
	if err != nil || info.N_stats == 0 || info.N_stats > 1<<16 {
		return nil
	}
	n := int(info.N_stats)
	// The driver may have more counters by now. Twice the room is ample.
	names, values := make([]byte, 12+2*n*nameLen), make([]byte, 8+2*n*8)
	native.PutUint32(names, unix.ETHTOOL_GSTRINGS)
	native.PutUint32(names[4:], statNames)
	native.PutUint32(values, unix.ETHTOOL_GSTATS)
	native.PutUint32(values[4:], uint32(n))
	if ethtool(netDev, names) != nil || ethtool(netDev, values) != nil {
		return nil
	}
	if int(native.Uint32(names[8:])) != n || int(native.Uint32(values[4:])) != n {
		return nil // the counters have changed meanwhile
	}
	stats := make(map[string]uint64, n)
	for i := range n {
		name, _, _ := bytes.Cut(names[12+i*nameLen:][:nameLen], []byte{0})
		stats[string(name)] = native.Uint64(values[8+i*8:])
	}
	return stats
}

// Speeds runs ETHTOOL_GLINKSETTINGS.
func (system) Speeds(netDev string) (active, both int) {
	const header, nwords = 48, 15 // struct ethtool_link_settings, and its link_mode_masks_nwords
	ask := make([]byte, header+3*4*127)
	native.PutUint32(ask, unix.ETHTOOL_GLINKSETTINGS)
	// The first call returns, as a negative number, how many words a mask has.
	if ethtool(netDev, ask) != nil {
		return 0, 0
	}
	words := -int(int8(ask[nwords]))
	if words <= 0 {
		return 0, 0
	}
	clear(ask)
	native.PutUint32(ask, unix.ETHTOOL_GLINKSETTINGS)
	ask[nwords] = byte(words)
	if ethtool(netDev, ask) != nil {
		return 0, 0
	}
	if speed := native.Uint32(ask[4:]); speed < 1<<31 { // not SPEED_UNKNOWN
		active = int(speed)
	}
	supported, partner := ask[header:][:4*words], ask[header+8*words:][:4*words]
	for bit := range 32 * words {
		mask := uint32(1) << (bit % 32)
		at := bit / 32 * 4
		if native.Uint32(supported[at:])&native.Uint32(partner[at:])&mask != 0 {
			both = max(both, modeSpeed(bit))
		}
	}
	return active, both
}

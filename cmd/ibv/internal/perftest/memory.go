package perftest

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/verbs"
)

// makeMemory registers the region for all messages.
func (s *side) makeMemory(size int, access verbs.AccessFlags) (err error) {
	if s.odp {
		if err := s.checkODP(); err != nil {
			return err
		}
		access |= verbs.AccessOnDemand
	}
	if s.dmabuf != "" {
		if err := s.makeDmabuf(size, access); err != nil {
			return fmt.Errorf("--dmabuf: %d bytes: %w", size, err)
		}
		return nil
	}
	options := verbs.MROptions{Access: access}
	if s.mmapFile == "" && !s.hugePages {
		s.mr, err = s.pd.AllocMR(size, options)
	} else {
		var mem mapping
		if mem, err = s.mapMemory(size); err != nil {
			return err
		}
		s.closeLater(mem)
		s.mr, err = s.pd.RegMR(mem[:size], options)
	}
	if err == nil {
		s.mem = s.mr.Bytes()
		s.closeLater(s.mr)
	}
	return err
}

// makeDmabuf registers a region of a dma-buf.
func (s *side) makeDmabuf(size int, access verbs.AccessFlags) error {
	page := os.Getpagesize()
	size = (size + page - 1) / page * page
	f, err := newDmabuf(s.dmabuf, size)
	if err != nil {
		return err
	}
	defer f.Close()
	mem, err := mapDmabuf(f, size)
	if err != nil {
		return err
	}
	s.mem = mem
	s.closeLater(mem)
	if s.mr, err = s.pd.RegDmabufMR(verbs.DmabufOptions{FD: int(f.Fd()), Length: uint64(size), Access: access}); err == nil {
		s.closeLater(s.mr)
	}
	return err
}

func (s *side) mapMemory(size int) (mapping, error) {
	if s.hugePages {
		mem, err := mapHuge(size)
		if err != nil {
			err = fmt.Errorf("--use_hugepages: %d bytes: %w; /proc/sys/vm/nr_hugepages says how many huge pages there are", size, err)
		}
		return mem, err
	}
	mem, err := mapFile(s.mmapFile, s.mmapOffset, size)
	if err != nil {
		err = fmt.Errorf("--mmap: %d bytes from %d on: %w", size, s.mmapOffset, err)
	}
	return mem, err
}

// checkODP checks that the device supports the test's operations on memory that is not pinned.
func (s *side) checkODP() error {
	caps := map[transport]verbs.ODPTransportCaps{
		rc: s.attr.ODP.RC, uc: s.attr.ODP.UC, ud: s.attr.ODP.UD, xrc: s.attr.ODP.XRC,
	}[s.transport]
	need := map[verb]verbs.ODPTransportCaps{
		send: verbs.ODPSupportSend, write: verbs.ODPSupportWrite, read: verbs.ODPSupportRead, atomics: verbs.ODPSupportAtomic,
	}[s.tool.verb]
	switch {
	case s.tool.verb == send && s.shares():
		need |= verbs.ODPSupportSRQRecv
	case s.tool.verb == send:
		need |= verbs.ODPSupportRecv
	}
	if s.attr.ODP.General&verbs.ODPSupport == 0 || caps&need != need {
		return fmt.Errorf("--odp: %s has no on-demand paging for this test", s.dev.Info().Name())
	}
	return nil
}

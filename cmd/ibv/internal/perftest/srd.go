package perftest

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/efadv"
	"github.com/goverbs/goverbs/verbs"
)

// checkSRD checks that the device has SRD and the tool's operation over it, and notes its limit.
func (s *side) checkSRD() error {
	name := s.dev.Info().Name()
	attr, err := efadv.QueryDevice(s.dev)
	if errors.Is(err, verbs.ErrNotSupported) {
		return fmt.Errorf("-c SRD: %s has no SRD, which only EFA adapters have", name)
	}
	if err != nil {
		return err
	}
	need := efadv.Caps(0)
	switch s.maxSRD = attr.MaxRDMASize; s.tool.verb {
	case send:
		s.maxSRD = int(s.port.MaxMsgSize)
	case read:
		need = efadv.CapRDMARead
	case write:
		need = efadv.CapRDMAWrite
	}
	if attr.Caps&need != need {
		return fmt.Errorf("-c SRD: %s, or its driver, has no %s", name, s.tool.verb.title())
	}
	return nil
}

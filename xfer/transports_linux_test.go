package xfer_test

import (
	"testing"

	"github.com/goverbs/goverbs/xfer"
)

// What holds over RC also holds over queue pairs that the connection manager connects, and over those
// whose requests overtake each other.
func TestTransports(t *testing.T) {
	for _, name := range []string{"iwarp", "unordered"} {
		t.Run(name, func(t *testing.T) {
			xfer.InPlaceOfRC(t, name)
			t.Run("ReadAndWrite", TestReadAndWrite)
			t.Run("Notify", TestNotify)
			t.Run("Fence", TestFence)
			t.Run("Flap", TestFlap)
			t.Run("NoGhost", TestNoGhost)
			t.Run("Revoke", TestRevoke)
			if name == "unordered" { // making connections takes longer than the simulation is patient
				t.Run("Simulation", func(t *testing.T) { simulate(t, 1000) })
			}
		})
	}
}

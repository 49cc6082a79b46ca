package rsocket

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// TestKeepAliveDefault: the default of KeepAlive is package net's.
func TestKeepAliveDefault(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 15 * time.Second, time.Minute: time.Minute, -1: -1} {
		o, err := Options{KeepAlive: given}.complete(&verbs.DeviceAttr{MaxQPWR: 1000}, 1)
		if err != nil || o.KeepAlive != want {
			t.Errorf("KeepAlive %v stands for %v, %v; want %v", given, o.KeepAlive, err, want)
		}
	}
}

//go:build !linux

package perftest

import (
	"time"
)

func cpuTime() time.Duration { return 0 }

func processors() (user, idle int64) { return 0, 0 }

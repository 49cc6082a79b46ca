//go:build !linux

package xfer

import (
	"os"

	"github.com/goverbs/goverbs/verbs"
)

func mapMemory(int, int, int) ([]byte, func() error, error) { return nil, nil, verbs.ErrNotSupported }

func mapFile(*os.File, int64, int, bool) ([]byte, func() error, error) {
	return nil, nil, verbs.ErrNotSupported
}

func numaNode(string) int { return -1 }

func duplicate(int) (*os.File, error) { return nil, verbs.ErrNotSupported }

//go:build !linux

package umad

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/uapi"
)

var errSystem = fmt.Errorf("%w on %s", errors.ErrUnsupported, runtime.GOOS)

func openNode(string) (*os.File, error)                    { return nil, errSystem }
func registerAgent(*os.File, *uapi.IbUserMadRegReq2) error { return errSystem }
func unregisterAgent(*os.File, uint32) error               { return errSystem }
func readLong(*os.File, []byte) (int, error)               { return 0, errSystem }
func skip(int, func([]byte) error) error                   { return errSystem }

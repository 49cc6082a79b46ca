// Package driververbs has the functions of package verbs that the packages for a driver's own
// verbs need, such as mlx5dv. Programs can't import it, so it promises them nothing.
package driververbs

import (
	"io"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/verbs"
)

// Verbs has the functions that package verbs implements in driver.go.
var Verbs = driverapi.Verbs.(interface {
	// Begin begins a verb on a Device, or on objects of one, which may also be driverapi.Objects.
	Begin(op string, on ...io.Closer) (*driverapi.Call, error)

	// Open opens a device. prepare may change the provider's context before the kernel creates its
	// own.
	Open(info *verbs.DeviceInfo, prepare func(context any) error) (*verbs.Device, error)

	// CreateQP is like PD.CreateQP, with extra options for the provider.
	CreateQP(op string, pd *verbs.PD, o *verbs.QPOptions, extra any) (*verbs.QP, error)

	// CreateCQ is like Device.CreateCQ, with extra options for the provider.
	CreateCQ(op string, dev *verbs.Device, o *verbs.CQOptions, extra any) (*verbs.CQ, error)

	// RegDmabufMR is like PD.RegDmabufMR, but add may add to its command.
	RegDmabufMR(op string, pd *verbs.PD, o *verbs.DmabufOptions, add func(ioctl.RegDmabufMr)) (*verbs.MR, error)

	// PostWQE posts a request in the adapter's format to the QP's send queue. It calls the method
	// PostRaw of the provider's QP. Without such a method, it returns errDriver.
	PostWQE(qp *verbs.QP, wrid uint64, wqe []byte, errDriver error) error
})

// Begin is like Verbs.Begin, for devices whose provider's context is a T. errDriver is the
// error for other devices.
func Begin[T any](errDriver error, op string, on ...io.Closer) (*driverapi.Call, error) {
	call, err := Verbs.Begin(op, on...)
	if err != nil {
		return nil, err
	}
	if _, ok := call.Device.(T); !ok {
		defer call.Done()
		return nil, call.Fail("", errDriver)
	}
	return call, nil
}

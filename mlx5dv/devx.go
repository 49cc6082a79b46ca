package mlx5dv

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/internal/driverapi"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/verbs"
)

// header is the length of the header of commands and answers.
const header = 16

// A CommandError is the firmware's refusal of a command. It wraps the kernel's errno.
type CommandError struct {
	Opcode   uint16 // of the refused command; 0 if an asynchronous one
	Status   uint8  // such as 3, a bad parameter
	Syndrome uint32 // the reason, in the firmware's own numbers
	Err      error  // the kernel's errno
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("the firmware refuses command %#x with status %#x, syndrome %#x", e.Opcode, e.Status, e.Syndrome)
}

func (e *CommandError) Unwrap() error { return e.Err }

// check refuses commands without a header. It clears the header of the answer, which the
// kernel writes only if it passes the command on.
func check(op string, in, out []byte) error {
	if len(in) < header || len(out) < header || len(in) > 0xffff || len(out) > 0xffff {
		return invalid(op, "a command of %d bytes with an answer of %d: both have %d to 65535", len(in), len(out), header)
	}
	clear(out[:header])
	return nil
}

// result returns the error of a command.
func result(call *driverapi.Call, in, out []byte, err error) error {
	if err == nil {
		return nil
	}
	if out[0] != 0 {
		err = &CommandError{Opcode: opcode(in), Status: out[0], Syndrome: binary.BigEndian.Uint32(out[4:]), Err: err}
	}
	return call.Fail(fmt.Sprintf("command %#x", opcode(in)), err)
}

func opcode(in []byte) uint16 { return binary.BigEndian.Uint16(in) }

// Command gives the firmware a command that makes and names no object, such as QUERY_HCA_CAP
// (mlx5dv_devx_general_cmd). The kernel decides which commands it accepts here. The answer is
// written to out. If the firmware refuses the command, the error wraps a *CommandError.
func Command(dev *verbs.Device, in, out []byte) error {
	const op = "DEVX command"
	if err := check(op, in, out); err != nil {
		return err
	}
	call, err := beginDEVX(op, dev)
	if err != nil {
		return err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5DevxOther()
	defer cmd.Release()
	cmd.In(in)
	cmd.Out(out)
	return result(call, in, out, cmd.Run(call.File))
}

// An Object is a firmware object that a command of the program has made (struct
// mlx5dv_devx_obj). Its methods are safe for concurrent use.
type Object struct{ object driverapi.Object }

// CreateObject gives the firmware a command that makes an object, such as CREATE_MKEY
// (mlx5dv_devx_obj_create). The answer, with the object's number, is written to out. The
// kernel destroys the object when the process's last handle to it is closed, also after a
// crash.
func CreateObject(dev *verbs.Device, in, out []byte) (*Object, error) {
	const op = "create DEVX object"
	if err := check(op, in, out); err != nil {
		return nil, err
	}
	call, err := beginDEVX(op, dev)
	if err != nil {
		return nil, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5DevxObjCreate()
	defer cmd.Release()
	handle := cmd.Handle()
	cmd.CmdIn(in)
	cmd.CmdOut(out)
	if err := cmd.Run(call.File); err != nil {
		return nil, result(call, in, out, err)
	}
	return &Object{call.Adopt(driverapi.Made{
		Name: "DEVX object", Op: "destroy DEVX object", Handle: uint32(*handle),
		Destroy: func(f *ioctl.File, handle uint32) error {
			cmd := ioctl.NewMlx5DevxObjDestroy()
			defer cmd.Release()
			cmd.Handle(handle)
			return cmd.Run(f)
		},
	})}, nil
}

// Close destroys the object (mlx5dv_devx_obj_destroy). The kernel has kept the command that
// destroys it. Close fails while another firmware object needs this object.
func (o *Object) Close() error {
	if o == nil {
		return nil
	}
	return o.object.Close()
}

// A Queryable is an object that the firmware has commands for.
type Queryable interface {
	*Object | *verbs.QP | *verbs.CQ | *verbs.SRQ | *verbs.WQ | *verbs.IndirectionTable
}

// inner returns the object of package verbs, or nil.
func inner[T Queryable](x T) io.Closer {
	if o, ok := any(x).(*Object); ok {
		if o == nil {
			return nil
		}
		return o.object
	}
	return any(x).(io.Closer)
}

// Query asks the firmware about an object, by a command such as QUERY_QP that names it
// (mlx5dv_devx_obj_query, mlx5dv_devx_qp_query and so on). The answer is written to out.
func Query[T Queryable](x T, in, out []byte) error {
	const op = "query DEVX object"
	call, err := beginOn(op, x, in, out)
	if err != nil {
		return err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5DevxObjQuery()
	defer cmd.Release()
	cmd.Handle(call.Handles[0])
	cmd.CmdIn(in)
	cmd.CmdOut(out)
	return result(call, in, out, cmd.Run(call.File))
}

// Modify changes an object by a command such as MODIFY_CQ that names it
// (mlx5dv_devx_obj_modify, mlx5dv_devx_qp_modify and so on). Package verbs doesn't notice the
// change.
func Modify[T Queryable](x T, in, out []byte) error {
	const op = "modify DEVX object"
	call, err := beginOn(op, x, in, out)
	if err != nil {
		return err
	}
	defer call.Done()
	return modify(call, in, out)
}

// modify modifies the call's object.
func modify(call *driverapi.Call, in, out []byte) error {
	cmd := ioctl.NewMlx5DevxObjModify()
	defer cmd.Release()
	cmd.Handle(call.Handles[0])
	cmd.CmdIn(in)
	cmd.CmdOut(out)
	return result(call, in, out, cmd.Run(call.File))
}

// beginOn is like beginDEVX, for a command about an object.
func beginOn[T Queryable](op string, x T, in, out []byte) (*driverapi.Call, error) {
	if err := check(op, in, out); err != nil {
		return nil, err
	}
	on := inner(x)
	if on == nil {
		return nil, invalid(op, "object is nil")
	}
	return beginDEVX(op, on)
}

// PDNumber returns the PD's number in the firmware, for commands that make objects in a PD
// (mlx5dv_init_obj with MLX5DV_OBJ_PD).
func PDNumber(pd *verbs.PD) (uint32, error) {
	call, err := begin("query PD", pd)
	if err != nil {
		return 0, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5PdQuery()
	defer cmd.Release()
	cmd.Handle(call.Handles[0])
	number := cmd.RespPdn()
	if err := cmd.Run(call.File); err != nil {
		return 0, call.Fail("", err)
	}
	return *number, nil
}

// EQNumber returns the number of the event queue behind a completion vector, for CREATE_CQ
// (mlx5dv_devx_query_eqn).
func EQNumber(dev *verbs.Device, vector int) (uint32, error) {
	const op = "query EQ"
	if n := max(dev.NumCompVectors(), 1); vector < 0 || dev != nil && vector >= n {
		return 0, invalid(op, "completion vector %d is not in 0 to %d", vector, n-1)
	}
	call, err := begin(op, dev)
	if err != nil {
		return 0, err
	}
	defer call.Done()
	cmd := ioctl.NewMlx5DevxQueryEqn()
	defer cmd.Release()
	cmd.UserVec(uint32(vector))
	number := cmd.DevEqn()
	if err := cmd.Run(call.File); err != nil {
		return 0, call.Fail("", err)
	}
	return *number, nil
}

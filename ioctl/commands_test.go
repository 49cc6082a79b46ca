package ioctl

import (
	"reflect"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uapi"
)

// built is a command with all the attributes that its Go methods add.
type built struct {
	name   string
	cmd    *Cmd
	driver uapi.RdmaDriverId // the driver whose Go methods were called in addition to the core's
}

// buildAll begins each command for each driver.
func buildAll(t *testing.T, driver uapi.RdmaDriverId) (all []built) {
	t.Helper()
	for _, f := range constructors {
		f := reflect.ValueOf(f)
		var args []reflect.Value
		if f.Type().NumIn() == 1 {
			args = append(args, reflect.ValueOf([]byte("the tail")))
		}
		c := f.Call(args)[0]
		name := c.Type().Name()
		if anothers(name, driver) {
			continue
		}
		cmd := c.FieldByName("Cmd").Interface().(*Cmd)
		t.Cleanup(cmd.Release)
		common := reflect.TypeFor[*Cmd]()
		for i := range c.NumMethod() {
			m := c.Type().Method(i)
			if _, ok := common.MethodByName(m.Name); ok {
				continue
			}
			if anothers(m.Name, driver) {
				continue
			}
			addAny(c.Method(i))
		}
		all = append(all, built{name, cmd, driver})
	}
	return all
}

// anothers reports whether a command, or a Go method of a command, belongs to another driver.
func anothers(name string, driver uapi.RdmaDriverId) bool {
	return strings.HasPrefix(name, "Mlx5") && driver != uapi.RDMA_DRIVER_MLX5 || strings.HasPrefix(name, "Efa") && driver != uapi.RDMA_DRIVER_EFA ||
		name == "Rxe" && driver != uapi.RDMA_DRIVER_RXE || name == "Siw" && driver != uapi.RDMA_DRIVER_SIW
}

// addAny calls a Go method that adds an attribute with values of the least length that
// every attribute takes.
func addAny(method reflect.Value) {
	var args []reflect.Value
	for i := range method.Type().NumIn() {
		in := method.Type().In(i)
		v := reflect.New(in).Elem()
		switch {
		case method.Type().NumIn() == 2 && i == 0: // an element without a payload
			v.SetUint(1)
		case method.Type().NumIn() == 2:
		case in.Kind() == reflect.Slice && in.Elem().Kind() == reflect.Uint8:
			v.Set(reflect.MakeSlice(in, 16, 16))
		case in.Kind() == reflect.Slice:
			v.Set(reflect.MakeSlice(in, 1, 1))
		}
		args = append(args, v)
	}
	out := method.Call(args)
	if len(out) == 1 && out[0].Kind() == reflect.Struct { // the driver's data
		for _, side := range []string{"In", "Out"} {
			f := out[0].MethodByName(side)
			if f.Type().Out(0) != reflect.TypeFor[*None]() {
				f.Call(nil)
			}
		}
	}
}

// The Go methods of all commands add exactly the schema's attributes: a complete command
// passes the check, and every attribute can be added.
func TestCommandsAreTheSchemas(t *testing.T) {
	seen := map[*uapi.Method]bool{}
	writes := map[string]bool{}
	for _, driver := range []uapi.RdmaDriverId{uapi.RDMA_DRIVER_RXE, uapi.RDMA_DRIVER_SIW, uapi.RDMA_DRIVER_EFA, uapi.RDMA_DRIVER_MLX5} {
		for _, b := range buildAll(t, driver) {
			if err := b.cmd.check(uint32(driver)); err != nil {
				t.Errorf("%v %s: %v", driver, b.name, err)
				continue
			}
			m := uapi.LookupMethod(driver, b.cmd.msg.hdr.ObjectId, b.cmd.msg.hdr.MethodId)
			seen[m] = true
			in, out := uapi.DriverData(driver, m.Verb)
			isWrite := m.CName == "UVERBS_METHOD_INVOKE_WRITE"
			if isWrite {
				w := uapi.LookupWriteCommand(uint32(b.cmd.find(uapi.UVERBS_ATTR_WRITE_CMD).Data))
				writes[w.CName] = true
				if in, out = nil, nil; w.Ex || w.UDATA {
					in, out = uapi.DriverData(driver, w.Name)
				}
			}
			for i := range m.Attrs {
				a := &m.Attrs[i]
				want := true
				switch a.CName {
				case "UVERBS_ATTR_UHW_IN":
					want = in != nil
				case "UVERBS_ATTR_UHW_OUT":
					want = out != nil
				default:
					want = !isWrite || b.cmd.find(a.ID) != nil // the check covers those
				}
				if got := b.cmd.find(a.ID) != nil; got != want {
					t.Errorf("%v %s: %s is added: %t, want %t", driver, b.name, a.CName, got, want)
				}
			}
		}
	}
	for id := range uint16(uapi.UVERBS_OBJECT_DMABUF + 1) {
		for _, driver := range []uapi.RdmaDriverId{uapi.RDMA_DRIVER_MLX5, uapi.RDMA_DRIVER_EFA} {
			for _, m := range uapi.LookupObject(driver, id).Methods {
				if !seen[m] {
					t.Errorf("no command of %v is %s", driver, m.CName)
				}
			}
		}
	}
	if n := len(writes); n < 45 || writes["IB_USER_VERBS_CMD_POLL_CQ"] {
		t.Errorf("%d write commands: %v", n, writes)
	}
}

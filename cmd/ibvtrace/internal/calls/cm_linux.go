//go:build amd64 || arm64

package calls

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/ibvtrace/internal/tracee"
	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// A cmCommand is a command of the connection manager, /dev/infiniband/rdma_cm.
type cmCommand struct {
	name      string // librdmacm's
	req, resp *uapi.Struct
}

var cmCommands = map[uint32]cmCommand{
	uapi.RDMA_USER_CM_CMD_CREATE_ID:          {"rdma_create_id", uapi.StructRdmaUcmCreateId, uapi.StructRdmaUcmCreateIdResp},
	uapi.RDMA_USER_CM_CMD_DESTROY_ID:         {"rdma_destroy_id", uapi.StructRdmaUcmDestroyId, uapi.StructRdmaUcmDestroyIdResp},
	uapi.RDMA_USER_CM_CMD_BIND_IP:            {"rdma_bind_addr", uapi.StructRdmaUcmBindIp, nil},
	uapi.RDMA_USER_CM_CMD_RESOLVE_IP:         {"rdma_resolve_addr", uapi.StructRdmaUcmResolveIp, nil},
	uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE:      {"rdma_resolve_route", uapi.StructRdmaUcmResolveRoute, nil},
	uapi.RDMA_USER_CM_CMD_QUERY_ROUTE:        {"rdma_query_route", uapi.StructRdmaUcmQuery, uapi.StructRdmaUcmQueryRouteResp},
	uapi.RDMA_USER_CM_CMD_CONNECT:            {"rdma_connect", uapi.StructRdmaUcmConnect, nil},
	uapi.RDMA_USER_CM_CMD_LISTEN:             {"rdma_listen", uapi.StructRdmaUcmListen, nil},
	uapi.RDMA_USER_CM_CMD_ACCEPT:             {"rdma_accept", uapi.StructRdmaUcmAccept, nil},
	uapi.RDMA_USER_CM_CMD_REJECT:             {"rdma_reject", uapi.StructRdmaUcmReject, nil},
	uapi.RDMA_USER_CM_CMD_DISCONNECT:         {"rdma_disconnect", uapi.StructRdmaUcmDisconnect, nil},
	uapi.RDMA_USER_CM_CMD_INIT_QP_ATTR:       {"rdma_init_qp_attr", uapi.StructRdmaUcmInitQpAttr, uapi.StructIbUverbsQpAttr},
	uapi.RDMA_USER_CM_CMD_GET_EVENT:          {"rdma_get_cm_event", uapi.StructRdmaUcmGetEvent, uapi.StructRdmaUcmEventResp},
	uapi.RDMA_USER_CM_CMD_SET_OPTION:         {"rdma_set_option", uapi.StructRdmaUcmSetOption, nil},
	uapi.RDMA_USER_CM_CMD_NOTIFY:             {"rdma_notify", uapi.StructRdmaUcmNotify, nil},
	uapi.RDMA_USER_CM_CMD_JOIN_IP_MCAST:      {"rdma_join_multicast", uapi.StructRdmaUcmJoinIpMcast, uapi.StructRdmaUcmCreateIdResp},
	uapi.RDMA_USER_CM_CMD_LEAVE_MCAST:        {"rdma_leave_multicast", uapi.StructRdmaUcmDestroyId, uapi.StructRdmaUcmDestroyIdResp},
	uapi.RDMA_USER_CM_CMD_MIGRATE_ID:         {"rdma_migrate_id", uapi.StructRdmaUcmMigrateId, uapi.StructRdmaUcmMigrateResp},
	uapi.RDMA_USER_CM_CMD_QUERY:              {"rdma_query", uapi.StructRdmaUcmQuery, nil}, // see cmQueries
	uapi.RDMA_USER_CM_CMD_BIND:               {"rdma_bind_addr", uapi.StructRdmaUcmBind, nil},
	uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR:       {"rdma_resolve_addr", uapi.StructRdmaUcmResolveAddr, nil},
	uapi.RDMA_USER_CM_CMD_JOIN_MCAST:         {"rdma_join_multicast_ex", uapi.StructRdmaUcmJoinMcast, uapi.StructRdmaUcmCreateIdResp},
	uapi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE: {"rdma_resolve_addrinfo", uapi.StructRdmaUcmResolveIbService, nil},
	uapi.RDMA_USER_CM_CMD_WRITE_CM_EVENT:     {"rdma_write_cm_event", uapi.StructRdmaUcmWriteCmEvent, nil},
}

// cmQueries are the responses to RDMA_USER_CM_CMD_QUERY, by option.
var cmQueries = map[uint64]*uapi.Struct{
	uapi.RDMA_USER_CM_QUERY_ADDR:       uapi.StructRdmaUcmQueryAddrResp,
	uapi.RDMA_USER_CM_QUERY_PATH:       uapi.StructRdmaUcmQueryPathResp,
	uapi.RDMA_USER_CM_QUERY_GID:        uapi.StructRdmaUcmQueryAddrResp,
	uapi.RDMA_USER_CM_QUERY_IB_SERVICE: uapi.StructRdmaUcmQueryIbServiceResp,
}

const (
	cmHdrSize = 8
	// maxCM bounds a command and its response. The header has their lengths in 16 bits.
	maxCM = 1 << 16
)

// enterCM decodes a command for the connection manager.
func (t *Decoder) enterCM(th *tracee.Thread, fd int, f *tracee.File, addr, n uint64) *tracee.Call {
	c := t.NewCall(th, tracee.KindCM, "rdma_cm_write")
	c.FD, c.File = fd, f
	var hdr [cmHdrSize]byte
	if n < cmHdrSize {
		c.Problem = fmt.Errorf("a command of %d bytes, want at least %d", n, cmHdrSize)
		return c
	}
	if err := t.Memory(th)(addr, hdr[:]); err != nil {
		c.Problem = fmt.Errorf("command at %#x: %w", addr, err)
		return c
	}
	number := binary.NativeEndian.Uint32(hdr[:])
	in, out := uint64(binary.NativeEndian.Uint16(hdr[4:])), uint64(binary.NativeEndian.Uint16(hdr[6:]))
	body := make([]byte, min(n-cmHdrSize, in, maxCM))
	if err := t.Memory(th)(addr+cmHdrSize, body); err != nil {
		c.Problem = fmt.Errorf("command at %#x: %w", addr+cmHdrSize, err)
		return c
	}
	command, known := cmCommands[number]
	if !known {
		c.Name = fmt.Sprintf("rdma_cm_command_%d", number)
		c.Args = []ioctl.NamedValue{{Name: "body", Value: ioctl.Value{Bytes: body}}}
		return c
	}
	c.Name = command.name
	if number == uapi.RDMA_USER_CM_CMD_GET_EVENT {
		c.Kind = tracee.KindEvent
	}
	fields := ioctl.DecodeStruct(command.req, body)
	response := tracee.Find(fields, "response")
	if number == uapi.RDMA_USER_CM_CMD_QUERY {
		if option := tracee.Find(fields, "option"); option != nil {
			command.resp = cmQueries[option.Num]
		}
	}
	c.Args = t.cmFields(f, fields, body, command.req)
	c.Finish = func(th *tracee.Thread, c *tracee.Call) {
		if c.Errno != 0 {
			return
		}
		if c.Ret == int64(n) { // write returns the length; the command's result is 0
			c.Ret = 0
		}
		if command.resp != nil && response != nil {
			b := make([]byte, min(out, maxCM))
			if err := t.Memory(th)(response.Num, b); err != nil {
				c.Results = []ioctl.NamedValue{{Name: "response", Value: ioctl.Value{Addr: response.Num, Err: err}}}
			} else {
				c.Results = t.cmFields(f, cmResponse(command.resp, b), b, command.resp)
			}
		}
		t.trackCM(c, number)
	}
	return c
}

// cmResponse decodes a response. Those of events are shorter in older programs.
func cmResponse(s *uapi.Struct, b []byte) []ioctl.NamedValue {
	if n := s.Size; n > 0 && len(b) > n && s.Fields[len(s.Fields)-1].Size != 0 {
		b = b[:n]
	}
	return ioctl.DecodeStruct(s, b)
}

// cmFields returns the relevant fields of a command or a response, with addresses, IDs and
// private data in readable form.
func (t *Decoder) cmFields(f *tracee.File, fields []ioctl.NamedValue, raw []byte, s *uapi.Struct) []ioctl.NamedValue {
	var out []ioctl.NamedValue
	skip := map[string]bool{"response": true, "src_size": true, "dst_size": true, "addr_size": true}
	for _, x := range fields {
		field := s.Field(x.Name)
		switch {
		case skip[x.Name] || strings.HasPrefix(x.Name, "reserved"):
			continue
		case x.Name == "id":
			x.Value = tracee.Handle("id", tracee.ClassCMID, x.Value.Num).Value
		case field != nil && isSockaddr(field.Type.Struct) && field.Offset+field.Size <= len(raw):
			x.Value = sockaddr(raw[field.Offset : field.Offset+field.Size])
		case x.Name == "param" && field != nil && field.Offset+field.Size <= len(raw):
			if v, ok := t.eventParam(f, fields, raw[field.Offset:field.Offset+field.Size]); ok {
				out = append(out, v...)
			}
			continue
		case x.Name == "conn_param":
			x.Value.Fields = connParam(x.Value.Fields)
		case x.Name == "private_data":
			n := tracee.Find(fields, "private_data_len")
			if n != nil && int(n.Num) <= len(x.Value.Bytes) {
				x.Value.Bytes = x.Value.Bytes[:n.Num]
			}
			if len(x.Value.Bytes) == 0 {
				continue
			}
		case x.Name == "private_data_len":
			continue
		case x.Name == "status" && x.Value.Num != 0:
			x.Value = statusValue(uint32(x.Value.Num))
		}
		out = append(out, x)
	}
	return out
}

// connParam limits the private data of a struct rdma_ucm_conn_param to its length.
func connParam(fields []ioctl.NamedValue) []ioctl.NamedValue {
	var out []ioctl.NamedValue
	n := tracee.Find(fields, "private_data_len")
	for _, x := range fields {
		switch x.Name {
		case "private_data":
			if n == nil || n.Num == 0 || int(n.Num) > len(x.Value.Bytes) {
				continue
			}
			x.Value.Bytes = x.Value.Bytes[:n.Num]
		case "private_data_len":
			continue
		}
		out = append(out, x)
	}
	return out
}

// statusValue returns an event's status, which is an errno or the reason of a rejection.
func statusValue(status uint32) ioctl.Value {
	if e := -int32(status); e > 0 && e < 4096 {
		return tracee.Text("", "-"+unix.ErrnoName(unix.Errno(e))).Value
	}
	return tracee.Number("", uint64(status)).Value
}

// eventParam decodes an event's parameters. Their form depends on the port space of the ID:
// only events for UD QPs have an address handle.
func (t *Decoder) eventParam(f *tracee.File, fields []ioctl.NamedValue, b []byte) ([]ioctl.NamedValue, bool) {
	e := tracee.Find(fields, "event")
	if e == nil {
		return nil, false
	}
	ud := false
	if id := tracee.Find(fields, "id"); id != nil {
		if o := f.Objects[tracee.KeyOf(tracee.ClassCMID, id.Num)]; o != nil {
			ud = o.UD
		}
	}
	switch uapi.RdmaCmEventType(e.Num) {
	case uapi.RDMA_CM_EVENT_CONNECT_REQUEST, uapi.RDMA_CM_EVENT_CONNECT_RESPONSE, uapi.RDMA_CM_EVENT_REJECTED,
		uapi.RDMA_CM_EVENT_ESTABLISHED, uapi.RDMA_CM_EVENT_MULTICAST_JOIN, uapi.RDMA_CM_EVENT_MULTICAST_ERROR:
	default:
		return nil, false
	}
	if e.Num == uint64(uapi.RDMA_CM_EVENT_MULTICAST_JOIN) || ud {
		v := ioctl.DecodeStruct(uapi.StructRdmaUcmUdParam, b)
		return []ioctl.NamedValue{tracee.Group("ud", connParam(v)...)}, true
	}
	return []ioctl.NamedValue{tracee.Group("conn", connParam(ioctl.DecodeStruct(uapi.StructRdmaUcmConnParam, b))...)}, true
}

// trackCM tracks the IDs that a command creates and destroys.
func (t *Decoder) trackCM(c *tracee.Call, command uint32) {
	id := tracee.Find(c.Args, "id")
	switch command {
	case uapi.RDMA_USER_CM_CMD_CREATE_ID:
		if made := tracee.Find(c.Results, "id"); made != nil {
			k := tracee.KeyOf(tracee.ClassCMID, made.Num)
			o := c.File.Made(k)
			if ps := tracee.Find(c.Args, "ps"); ps != nil {
				o.UD = ps.Num == uint64(uapi.RDMA_PS_UDP) || ps.Num == uint64(uapi.RDMA_PS_IPOIB)
			}
			c.Made = append(c.Made, k)
		}
	case uapi.RDMA_USER_CM_CMD_DESTROY_ID:
		if id != nil {
			t.noteEnded(c, tracee.KeyOf(tracee.ClassCMID, id.Num))
		}
	case uapi.RDMA_USER_CM_CMD_GET_EVENT:
		// A connection request has a new ID, with the listener's port space.
		e, made := tracee.Find(c.Results, "event"), tracee.Find(c.Results, "id")
		if e != nil && made != nil && e.Num == uint64(uapi.RDMA_CM_EVENT_CONNECT_REQUEST) {
			k := tracee.KeyOf(tracee.ClassCMID, made.Num)
			c.File.Made(k).UD = tracee.Find(c.Results, "ud") != nil
			c.Made = append(c.Made, k)
		}
	}
}

func isSockaddr(s *uapi.Struct) bool {
	return s == uapi.StructSockaddrIn6 || s == uapi.StructKernelSockaddrStorage || s == uapi.StructSockaddrIn
}

var errSockaddr = errors.New("not an address")

// sockaddr returns an address in its usual notation.
func sockaddr(b []byte) ioctl.Value {
	s, err := formatSockaddr(b)
	if err != nil {
		return ioctl.Value{Bytes: b}
	}
	return tracee.Text("", s).Value
}

func formatSockaddr(b []byte) (string, error) {
	if len(b) < 16 {
		return "", errSockaddr
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_UNSPEC:
		return "none", nil
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port).String(), nil
	case unix.AF_INET6:
		if len(b) < 28 {
			return "", errSockaddr
		}
		a := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 {
			a = a.WithZone(fmt.Sprint(scope))
		}
		return netip.AddrPortFrom(a, port).String(), nil
	case unix.AF_IB:
		// struct sockaddr_ib: pkey, flow, address, service id.
		if len(b) < 40 {
			return "", errSockaddr
		}
		return fmt.Sprintf("ib:%v,pkey=%#x,sid=%#x", netip.AddrFrom16([16]byte(b[8:24])),
			binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint64(b[24:])), nil
	}
	return "", errSockaddr
}

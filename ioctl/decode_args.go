package ioctl

import (
	"slices"
	"strings"

	"github.com/goverbs/goverbs/uapi"
)

// Args returns the call's inputs, with libibverbs's names: the fields of a write command's
// request, or else the attributes.
func (c *Call) Args() []NamedValue {
	var out []NamedValue
	for i := range c.Attrs {
		a := &c.Attrs[i]
		switch {
		case a.In == nil || c.Write != nil && a.Raw.AttrId == uapi.UVERBS_ATTR_WRITE_CMD:
			continue
		case c.Write != nil && a.Raw.AttrId == uapi.UVERBS_ATTR_CORE_IN && a.In.Fields != nil:
			out = append(out, requestFields(c.Write, a.In.Fields)...)
		default:
			out = append(out, NamedValue{a.name(), *a.In})
		}
	}
	return out
}

// Results returns the call's outputs, new objects first.
func (c *Call) Results() []NamedValue {
	var objects, data []NamedValue
	for i := range c.Attrs {
		a := &c.Attrs[i]
		switch {
		case a.Out == nil:
			continue
		case a.Out.Fields != nil && a.isResponse():
			data = append(data, inlineBase(a.Out.Fields)...)
		case a.Spec.Access == uapi.AccessNew:
			objects = append(objects, NamedValue{a.name(), *a.Out})
		default:
			data = append(data, NamedValue{a.name(), *a.Out})
		}
	}
	return append(objects, data...)
}

// isResponse reports whether the attribute is the verb's main result, whose fields need no
// prefix.
func (a *CallAttr) isResponse() bool {
	return a.Spec.Name == "RESP" || a.Spec.CName == "UVERBS_ATTR_CORE_OUT"
}

// inlineBase replaces base structs by their fields: for example, ib_uverbs_ex_modify_qp
// begins with an ib_uverbs_modify_qp.
func inlineBase(fields []NamedValue) []NamedValue {
	var out []NamedValue
	for _, f := range fields {
		if (f.Name == "base" || f.Name == "legacy_resp") && f.Value.Fields != nil {
			out = append(out, f.Value.Fields...)
		} else {
			out = append(out, f)
		}
	}
	return out
}

// name returns an attribute's name: "send_cq" for UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE.
func (a *CallAttr) name() string {
	if a.Spec == nil {
		return "attr_" + hex(uint64(a.Raw.AttrId))
	}
	switch a.Spec.CName {
	case "UVERBS_ATTR_UHW_IN", "UVERBS_ATTR_UHW_OUT":
		return "driver"
	}
	name := strings.ToLower(a.Spec.Name)
	switch a.Spec.Kind {
	case uapi.AttrIDR, uapi.AttrIDRArray, uapi.AttrFD:
		name = strings.TrimSuffix(strings.TrimSuffix(name, "handle"), "_")
		if name == "" {
			name = ObjectWord(a.Spec.Object)
		}
	case uapi.AttrPtrOut:
		if rest, ok := strings.CutPrefix(name, "resp_"); ok {
			name = rest
		}
	}
	return name
}

// ObjectWord returns the lower-case name of a core object type, such as "comp_channel", or
// "handle" for others.
func ObjectWord(id uint16) string {
	if cname := uapi.EnumUverbsDefaultObjects.CNameOf(uint64(id)); cname != "" {
		return strings.ToLower(strings.TrimPrefix(cname, uapi.EnumUverbsDefaultObjects.Prefix))
	}
	return "handle"
}

// fieldName returns the name of a struct's field: "pd" for a pd_handle.
func fieldName(f *uapi.Field) string {
	if f.Type.Kind == uapi.TypeHandle {
		return strings.TrimSuffix(f.CName, "_handle")
	}
	return f.CName
}

// requestFields returns the meaningful fields of a request.
func requestFields(w *uapi.WriteCommand, fields []NamedValue) []NamedValue {
	fields = slices.DeleteFunc(inlineBase(fields), func(f NamedValue) bool {
		// response is the response's address for write(). The ioctl has CORE_OUT instead.
		return f.Name == "response"
	})
	if w.Name == "modify_qp" {
		return selectedQPAttrs(fields)
	}
	return fields
}

// qpAttrBits maps fields of ib_uverbs_modify_qp to the bits of attr_mask that select them.
var qpAttrBits = map[string]uapi.IbQpAttrMask{
	"qp_state":            uapi.IB_QP_STATE,
	"cur_qp_state":        uapi.IB_QP_CUR_STATE,
	"en_sqd_async_notify": uapi.IB_QP_EN_SQD_ASYNC_NOTIFY,
	"qp_access_flags":     uapi.IB_QP_ACCESS_FLAGS,
	"pkey_index":          uapi.IB_QP_PKEY_INDEX,
	"port_num":            uapi.IB_QP_PORT,
	"qkey":                uapi.IB_QP_QKEY,
	"dest":                uapi.IB_QP_AV,
	"path_mtu":            uapi.IB_QP_PATH_MTU,
	"timeout":             uapi.IB_QP_TIMEOUT,
	"retry_cnt":           uapi.IB_QP_RETRY_CNT,
	"rnr_retry":           uapi.IB_QP_RNR_RETRY,
	"rq_psn":              uapi.IB_QP_RQ_PSN,
	"max_rd_atomic":       uapi.IB_QP_MAX_QP_RD_ATOMIC,
	"alt_dest":            uapi.IB_QP_ALT_PATH,
	"alt_pkey_index":      uapi.IB_QP_ALT_PATH,
	"alt_port_num":        uapi.IB_QP_ALT_PATH,
	"alt_timeout":         uapi.IB_QP_ALT_PATH,
	"min_rnr_timer":       uapi.IB_QP_MIN_RNR_TIMER,
	"sq_psn":              uapi.IB_QP_SQ_PSN,
	"max_dest_rd_atomic":  uapi.IB_QP_MAX_DEST_RD_ATOMIC,
	"path_mig_state":      uapi.IB_QP_PATH_MIG_STATE,
	"dest_qp_num":         uapi.IB_QP_DEST_QPN,
	"rate_limit":          uapi.IB_QP_RATE_LIMIT,
}

// selectedQPAttrs puts the handle and the mask first. It drops the fields that the mask
// doesn't select, because the kernel ignores them.
func selectedQPAttrs(fields []NamedValue) []NamedValue {
	i := slices.IndexFunc(fields, func(f NamedValue) bool { return f.Name == "attr_mask" })
	if i < 0 {
		return fields
	}
	mask := uapi.IbQpAttrMask(fields[i].Value.Num)
	var first, rest []NamedValue
	for _, f := range fields {
		bit, known := qpAttrBits[f.Name]
		switch {
		case f.Name == "qp" || f.Name == "attr_mask":
			first = append(first, f)
		case !known || mask&bit != 0:
			rest = append(rest, f)
		}
	}
	return append(first, rest...)
}

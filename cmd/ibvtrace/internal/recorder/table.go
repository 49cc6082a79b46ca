package recorder

import "github.com/goverbs/goverbs/uapi"

// table returns the methods of a driver, from the schema.
func table(driver uapi.RdmaDriverId) []method {
	t := make([]method, objects*methods)
	for o := range uint16(objects) {
		for id := range uint16(methods) {
			if m := uapi.LookupMethod(driver, o, id); m != nil {
				t[int(o)<<methodsShift|int(id)] = methodOf(m)
			}
		}
	}
	t[uapi.UVERBS_OBJECT_DEVICE<<methodsShift|uapi.UVERBS_METHOD_INVOKE_WRITE].commands = commands()
	return t
}

func methodOf(schema *uapi.Method) method {
	var m method
	for i := range schema.Attrs {
		a := &schema.Attrs[i]
		if a.Kind == uapi.AttrFD && a.Access == uapi.AccessNew {
			return method{} // ibvtrace must see the descriptor before the program uses it
		}
		n, ok := bit(a.ID)
		if !ok {
			continue
		}
		m.known |= 1 << n
		switch a.Kind {
		case uapi.AttrPtrIn, uapi.AttrEnumIn, uapi.AttrIDRArray:
			m.in |= 1 << n
		case uapi.AttrPtrOut:
			m.out |= 1 << n
		}
	}
	return m
}

// bit returns an attribute's bit in a method's masks.
func bit(id uint16) (int, bool) {
	space, n := int(id>>12), int(id&0xfff)
	return space<<attrsShift | n, space <= 1 && n < attrs
}

// commands returns the set of INVOKE_WRITE's commands that open no file.
func commands() uint64 {
	var set uint64
next:
	for id := range uint32(64) {
		w := uapi.LookupWriteCommand(id)
		if w == nil {
			continue
		}
		if w.Resp != nil {
			for i := range w.Resp.Fields {
				if w.Resp.Fields[i].Type.Kind == uapi.TypeFD {
					continue next
				}
			}
		}
		set |= 1 << id
	}
	return set
}

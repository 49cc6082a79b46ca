//go:build amd64 || arm64

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/ioctl"
	"github.com/goverbs/goverbs/uapi"
)

// appendJSON appends the line that programs read; package main's comment
// describes it. Written by hand, because the order of args is the call's.
func (v *verb) appendJSON(b []byte) []byte {
	b = append(b, `{"ts":`...)
	b = appendString(b, v.start.UTC().Format("2006-01-02T15:04:05.000000000Z07:00"))
	b = fmt.Appendf(b, `,"pid":%d,"tid":%d,"comm":`, v.pid, v.tid)
	b = appendString(b, v.thread)
	b = append(b, `,"dev":`...)
	b = appendString(b, v.device)
	b = fmt.Appendf(b, `,"fd":%d,"driver":`, v.fd)
	var driver, object, method string
	var args, out []ioctl.NamedValue
	if c := v.call; c != nil {
		driver, object, method = c.Driver(), c.ObjectName(), c.MethodName()
		args, out = c.Args(), c.Results()
	}
	b = appendString(b, driver)
	b = append(b, `,"verb":`...)
	b = appendString(b, v.name())
	b = append(b, `,"object":`...)
	b = appendString(b, object)
	b = append(b, `,"method":`...)
	b = appendString(b, method)
	b = append(b, `,"args":`...)
	b = appendObject(b, args)
	b = append(b, `,"out":`...)
	b = appendObject(b, out)
	if v.returned {
		b = fmt.Appendf(b, `,"ret":%d,"errno":`, v.ret)
		b = appendString(b, errnoName(v.errno))
	} else {
		b = append(b, `,"ret":null,"errno":""`...)
	}
	return fmt.Appendf(b, `,"dur_ns":%d}`, v.duration.Nanoseconds())
}

func appendString(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string fails
	}
	return append(b, q...)
}

func appendObject(b []byte, fields []ioctl.NamedValue) []byte {
	b = append(b, '{')
	seen := make(map[string]int, len(fields))
	for i := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		name := fields[i].Name
		// A program may give an attribute twice, but an object has no
		// name twice.
		if seen[name]++; seen[name] > 1 {
			name += "_" + strconv.Itoa(seen[name])
		}
		b = appendString(b, name)
		b = append(b, ':')
		b = appendJSONValue(b, &fields[i].Value)
	}
	return append(b, '}')
}

func appendJSONValue(b []byte, v *ioctl.Value) []byte {
	if v.Err != nil {
		return fmt.Appendf(b, `{"unreadable":"%#x"}`, v.Addr)
	}
	switch v.Kind() {
	case uapi.TypeUint, uapi.TypeHandle:
		return strconv.AppendUint(b, v.Num, 10)
	case uapi.TypeInt, uapi.TypeFD:
		return strconv.AppendInt(b, int64(v.Num), 10)
	case uapi.TypeBool:
		return strconv.AppendBool(b, v.Num != 0)
	case uapi.TypeEnum:
		return appendString(b, enumWord(v))
	case uapi.TypeFlags:
		b = append(b, '[')
		if v.Num != 0 {
			for i, name := range strings.Split(enumWord(v), "|") {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendString(b, name)
			}
		}
		return append(b, ']')
	case uapi.TypePtr:
		return fmt.Appendf(b, `"%#x"`, v.Num)
	case uapi.TypeStruct, uapi.TypeUnion:
		return appendObject(b, v.Fields)
	case uapi.TypeArray:
		b = append(b, '[')
		for i := range v.Elems {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSONValue(b, &v.Elems[i])
		}
		return append(b, ']')
	}
	return appendString(b, bytesWord(v))
}

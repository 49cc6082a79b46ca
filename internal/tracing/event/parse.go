package event

import (
	"bytes"
	"encoding/json"
	"errors"
)

// A node is a JSON value. It keeps the order of fields, and fields with the same name, which
// Go's maps and structs would lose.
type node struct {
	scalar any        // nil, bool, json.Number or string, if it is neither an object nor an array
	kind   json.Delim // '{', '[', or 0 for a scalar
	names  []string   // of an object's fields
	nodes  []node     // of an object or an array
}

const (
	object json.Delim = '{'
	array  json.Delim = '['
)

// get returns the object's field with a name, or nil.
func (n *node) get(name string) *node {
	for i := range n.names {
		if n.names[i] == name {
			return &n.nodes[i]
		}
	}
	return nil
}

var (
	errSyntax = errors.New("not JSON")
	errDeep   = errors.New("nested too deep")
	errMany   = errors.New("too many values")
)

const (
	maxDepth  = 32      // far more than the kernel's structs nest
	maxValues = 1 << 19 // more than 512 requests with 64 pieces of memory each have
)

// bound returns an error for JSON that nests deeper than maxDepth or has more than maxValues. encoding/json would
// accept it, and each value takes far more memory than its text.
func bound(b []byte) error {
	depth, values, quoted := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[' || c == ',': // a value may follow
			if values++; values > maxValues {
				return errMany
			}
			if c != ',' {
				depth++
			}
			if depth > maxDepth {
				return errDeep
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// parse parses JSON that bound accepts.
func parse(b []byte) (node, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var n node
	err := n.read(d)
	return n, err
}

func (n *node) read(d *json.Decoder) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	var many bool
	if n.kind, many = t.(json.Delim); !many {
		n.scalar = t
		return nil
	}
	for d.More() {
		if n.kind == object {
			name, err := d.Token()
			if err != nil {
				return err
			}
			n.names = append(n.names, name.(string))
		}
		n.nodes = append(n.nodes, node{})
		if err := n.nodes[len(n.nodes)-1].read(d); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing delimiter
	return err
}

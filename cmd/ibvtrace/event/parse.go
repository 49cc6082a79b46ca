package event

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// A node is a JSON value with its fields in order, which encoding/json loses.
type node struct {
	kind  nodeKind
	text  string // a number as it is written, a string's characters
	names []string
	nodes []node // of an object or an array
}

type nodeKind uint8

const (
	isNull nodeKind = iota
	isFalse
	isTrue
	isNumber
	isString
	isArray
	isObject
)

// get returns the object's field, nil if there is none.
func (n *node) get(name string) *node {
	if n.kind != isObject {
		return nil
	}
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
)

// maxDepth is far more than the kernel's structs nest.
const maxDepth = 32

// A parser parses one JSON value. Its input is nobody's in particular.
type parser struct {
	b     []byte
	depth int
}

func parse(b []byte) (node, error) {
	p := parser{b: b}
	n, err := p.value()
	if err != nil {
		return n, err
	}
	if p.next() != 0 || len(p.b) > 0 {
		return n, errSyntax
	}
	return n, nil
}

// next skips white space and returns the byte after it, 0 at the end.
func (p *parser) next() byte {
	for len(p.b) > 0 {
		switch c := p.b[0]; c {
		case ' ', '\t', '\r', '\n':
			p.b = p.b[1:]
		default:
			return c
		}
	}
	return 0
}

func (p *parser) value() (node, error) {
	switch c := p.next(); {
	case c == '{' || c == '[':
		if p.depth++; p.depth > maxDepth {
			return node{}, errDeep
		}
		n, err := p.many(c == '{')
		p.depth--
		return n, err
	case c == '"':
		s, err := p.str()
		return node{kind: isString, text: s}, err
	case c == '-' || c >= '0' && c <= '9':
		i := 1
		for i < len(p.b) && isNumberByte(p.b[i]) {
			i++
		}
		n := node{kind: isNumber, text: string(p.b[:i])}
		p.b = p.b[i:]
		return n, nil
	}
	for _, w := range []struct {
		word string
		kind nodeKind
	}{{"null", isNull}, {"true", isTrue}, {"false", isFalse}} {
		if len(p.b) >= len(w.word) && string(p.b[:len(w.word)]) == w.word {
			p.b = p.b[len(w.word):]
			return node{kind: w.kind}, nil
		}
	}
	return node{}, errSyntax
}

func isNumberByte(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// many parses an object or an array.
func (p *parser) many(object bool) (node, error) {
	n, end := node{kind: isArray}, byte(']')
	if object {
		n.kind, end = isObject, '}'
	}
	p.b = p.b[1:]
	if p.next() == end {
		p.b = p.b[1:]
		return n, nil
	}
	for {
		if object {
			if p.next() != '"' {
				return n, errSyntax
			}
			name, err := p.str()
			if err != nil {
				return n, err
			}
			if p.next() != ':' {
				return n, errSyntax
			}
			p.b = p.b[1:]
			n.names = append(n.names, name)
		}
		v, err := p.value()
		if err != nil {
			return n, err
		}
		n.nodes = append(n.nodes, v)
		c := p.next()
		if c != end && c != ',' {
			return n, errSyntax
		}
		p.b = p.b[1:]
		if c == end {
			return n, nil
		}
	}
}

func (p *parser) str() (string, error) {
	plain := true
	for i := 1; i < len(p.b); i++ {
		switch c := p.b[i]; {
		case c == '"':
			quoted := p.b[:i+1]
			p.b = p.b[i+1:]
			if plain {
				return string(quoted[1:i]), nil
			}
			var s string
			if json.Unmarshal(quoted, &s) != nil {
				return "", errSyntax
			}
			return s, nil
		case c == '\\':
			plain = false
			i++
		case c < ' ':
			return "", errSyntax
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return "", errSyntax
}

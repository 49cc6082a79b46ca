// Gen prints the table of package ifc from a kernel's mlx5_ifc.h:
//
//	go run -C rig ./connectx/internal/ifc/gen /usr/src/linux-headers-7.2.12+deb13-common/include/linux/mlx5/mlx5_ifc.h >rig/connectx/internal/ifc/layouts.txt
//
// Debian has the header in linux-headers-VERSION-common. The table has only the layouts
// that the model uses, and those that they contain.
package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type member struct {
	name   string
	offset int // in bits
	width  int // in bits, of one element
	count  int // elements; 0: as many as fit
	layout string
}

type layout struct {
	bits    int
	members []member
}

type parser struct {
	sources map[string]string
	tokens  []string
	layouts map[string]layout
}

var (
	token  = regexp.MustCompile(`\w+|[^\s\w]`)
	nested = regexp.MustCompile(`(?m)^\s*struct.*;$`)
)

// layout parses the declaration with this name, once.
func (p *parser) layout(name string) layout {
	if l, ok := p.layouts[name]; ok {
		return l
	}
	source, ok := p.sources[name]
	if !ok {
		fail("the header has no layout %s", name)
	}
	if slices.Contains(strings.Fields(opaque), name) {
		source = nested.ReplaceAllString(source, "")
	}
	inner := parser{sources: p.sources, layouts: p.layouts, tokens: token.FindAllString(source, -1)}
	union := inner.next() == "union"
	inner.next()
	inner.expect("{")
	p.layouts[name] = inner.body(union)
	return p.layouts[name]
}

func (p *parser) next() string {
	token := p.tokens[0]
	p.tokens = p.tokens[1:]
	return token
}

func (p *parser) expect(want string) {
	if got := p.next(); got != want {
		fail("'%s' where '%s' should be, before %q", got, want, p.tokens[:min(8, len(p.tokens))])
	}
}

// dimension reads "[SIZE]" or "[]", if there is one.
func (p *parser) dimension() (size int, ok bool) {
	if p.tokens[0] != "[" {
		return 0, false
	}
	p.next()
	if p.tokens[0] != "]" {
		n, err := strconv.ParseInt(p.next(), 0, 32)
		if err != nil {
			fail("%v", err)
		}
		size = int(n)
	}
	p.expect("]")
	return size, true
}

func typeName(token string) string {
	return strings.TrimSuffix(strings.TrimPrefix(token, "mlx5_ifc_"), "_bits")
}

// body reads members up to the closing brace.
func (p *parser) body(union bool) layout {
	var l layout
	add := func(m member) {
		at := l.bits
		if union {
			at = 0
		}
		m.offset += at
		l.members = append(l.members, m)
		l.bits = max(l.bits, m.offset+m.width*m.count)
	}
	for p.tokens[0] != "}" {
		switch kind := p.next(); kind {
		case "u8":
			m := member{name: p.next(), width: 1, count: 1}
			first, ok := p.dimension()
			second, two := p.dimension()
			switch {
			case two:
				m.count, m.width = first, second
			case ok:
				m.width = first
			}
			add(m)
		case "DECLARE_FLEX_ARRAY":
			p.expect("(")
			p.next()
			inner := typeName(p.next())
			p.expect(",")
			add(member{name: p.next(), width: p.layout(inner).bits, layout: inner})
			p.expect(")")
		case "struct", "union":
			if p.tokens[0] != "{" && p.tokens[1] == "{" {
				p.next() // an unused tag
			}
			if p.tokens[0] != "{" {
				inner := typeName(p.next())
				m := member{name: p.next(), width: p.layout(inner).bits, count: 1, layout: inner}
				if n, ok := p.dimension(); ok {
					m.count = n
				}
				add(m)
				break
			}
			p.next()
			inner := p.body(kind == "union")
			prefix := ""
			if p.tokens[0] != ";" {
				prefix = p.next() + "."
			}
			start := l.bits
			if union {
				start = 0
			}
			for _, m := range inner.members {
				m.name = prefix + m.name
				m.offset += start
				l.members = append(l.members, m)
			}
			l.bits = max(l.bits, start+inner.bits)
		default:
			fail("unexpected '%s', before %q", kind, p.tokens[:min(8, len(p.tokens))])
		}
		p.expect(";")
	}
	p.next()
	return l
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "gen: "+format+"\n", args...)
	os.Exit(1)
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: gen MLX5_IFC.H")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail("%v", err)
	}
	plain := regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAll(text, nil)
	declaration := regexp.MustCompile(`(?ms)^(?:struct|union) mlx5_ifc_(\w+?)(?:_bits)? \{.*?^\};`)
	sources := map[string]string{}
	for _, d := range declaration.FindAllStringSubmatch(string(plain), -1) {
		sources[d[1]] = d[0]
	}
	p := parser{sources: sources, layouts: map[string]layout{}}

	wanted := map[string]bool{}
	var want func(name string)
	want = func(name string) {
		l := p.layout(name)
		if wanted[name] {
			return
		}
		wanted[name] = true
		for _, m := range l.members {
			if m.layout != "" {
				want(m.layout)
			}
		}
	}
	for _, name := range strings.Fields(commands) {
		want(name + "_in")
		want(name + "_out")
	}
	for _, name := range strings.Fields(others) {
		want(name)
	}
	var names []string
	for name := range wanted {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Println("# Made by gen from the kernel's mlx5_ifc.h.")
	fmt.Println("# layout BITS, then its fields: name offset width count [layout], all in bits")
	for _, name := range names {
		l := p.layout(name)
		fmt.Println(name, l.bits)
		for _, m := range l.members {
			if strings.HasPrefix(m.name, "reserved_at") {
				continue
			}
			fmt.Println(strings.TrimRight(fmt.Sprintf("\t%s %d %d %d %s", m.name, m.offset, m.width, m.count, m.layout), " "))
		}
	}
}

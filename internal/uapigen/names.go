package main

import (
	"regexp"
	"strings"
)

// goName turns a C name into a Go one: each word loses its underscore and
// gets an upper first letter.
func goName(c string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(c, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// goFile is the file that a header's types and constants go to.
func goFile(header string) string {
	for _, h := range cHeaders {
		if strings.HasSuffix(h, "/"+header) {
			return strings.ReplaceAll(strings.TrimSuffix(header, ".h"), "-", "_") + ".go"
		}
	}
	return "sockaddr.go"
}

// Identifiers number objects, methods, attributes and commands. Their constants are
// untyped, because they go into fields of different widths.
var identifier = regexp.MustCompile(`^(UVERBS|MLX5_IB)_(OBJECT|METHOD|ATTR|ID)_|^IB_USER_VERBS_(EX_)?CMD_`)

func (e *cEnum) isIdentifiers() bool {
	return identifier.MatchString(e.Values[0].Name) && !e.isFlags()
}

// typed reports whether the enum becomes a Go type.
func (e *cEnum) typed() bool { return e.Tag != "" && !e.isIdentifiers() }

var flagsTag = regexp.MustCompile(`(_flags?|_mask|_bits|_caps|_support|_offloads|_fields|_format|_supp_uhw)$|^ib_placement_type$`)

// isFlags reports whether the enum's values are bits to combine.
func (e *cEnum) isFlags() bool { return flagsTag.MatchString(e.name()) }

// name is the enum's tag, or the name that the hints give it.
func (e *cEnum) name() string {
	if e.Tag != "" {
		return e.Tag
	}
	return anonymousEnums[e.Values[0].Name]
}

// described reports whether there is an Enum that tells the values' names.
func (e *cEnum) described() bool {
	return e.name() != "" && (!e.isIdentifiers() || describedIdentifiers[e.name()])
}

// prefix is what the values' names have in common, up to an underscore.
func (e *cEnum) prefix() string {
	if p, ok := enumPrefixes[e.name()]; ok {
		return p
	}
	var names []string
	for _, v := range e.Values {
		names = append(names, v.Name)
	}
	return commonPrefix(names)
}

func commonPrefix(names []string) string {
	p := names[0]
	for _, n := range names {
		for !strings.HasPrefix(n, p) {
			p = p[:len(p)-1]
		}
	}
	return p[:strings.LastIndexByte(p, '_')+1]
}

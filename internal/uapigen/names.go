package main

import (
	"regexp"
	"strings"
)

// goName converts a C name to mixed caps.
func goName(c string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(c, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// goFile returns the name of the Go file for a header.
func goFile(header string) string {
	for _, h := range cHeaders {
		if strings.HasSuffix(h, "/"+header) {
			return strings.ReplaceAll(strings.TrimSuffix(header, ".h"), "-", "_") + ".go"
		}
	}
	return "sockaddr.go"
}

// Identifiers are the numbers of objects, methods, attributes and commands. Their constants
// are untyped, because they are stored in fields of different widths.
var identifier = regexp.MustCompile(`^(UVERBS|MLX5_IB|EFA_IB)_(OBJECT|METHOD|ATTR|ID)_|^IB_USER_VERBS_(EX_)?CMD_|^RDMA_NLDEV_(CMD|ATTR)_`)

func (e *cEnum) isIdentifiers() bool {
	return identifier.MatchString(e.Values[0].Name) && !e.isFlags()
}

// typed reports whether the enum becomes a Go type.
func (e *cEnum) typed() bool { return e.Tag != "" && !e.isIdentifiers() }

var flagsTag = regexp.MustCompile(`(_flags?|_mask|_bits|_caps|_support|_offloads|_fields|_format|_supp_uhw)$|^efa_ibv_user_cmds_supp_udata$|^ib_placement_type$|^ib_uverbs_qp_attach_comp_cntr_op$`)

// isFlags reports whether the enum's values are bits that can be combined.
func (e *cEnum) isFlags() bool { return flagsTag.MatchString(e.name()) }

// name returns the enum's tag, or its name from the hints.
func (e *cEnum) name() string {
	if e.Tag != "" {
		return e.Tag
	}
	return anonymousEnums[e.Values[0].Name]
}

// described reports whether there is an Enum with the values' names.
func (e *cEnum) described() bool {
	return e.name() != "" && (!e.isIdentifiers() || describedIdentifiers[e.name()])
}

// prefix returns the common prefix of the values' names, up to an underscore.
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

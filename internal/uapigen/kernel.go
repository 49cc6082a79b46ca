package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// Some facts are in the kernel's sources, but not in its exported headers: the attributes
// of methods, and some enums whose values user space needs. readKernel extracts them as
// facts, one a line, for kernel.txt. So a kernel tree is needed only when they change.

// kernelEnums are the enums to extract, by header.
var kernelEnums = []struct{ header, tags string }{
	{"include/rdma/ib_verbs.h", `rdma_link_layer ib_atomic_cap ib_mtu ib_port_state ib_port_phys_state ib_port_width
		ib_port_speed ib_event_type ib_ah_flags ib_rate ib_wc_status ib_wc_flags ib_wc_opcode ib_cq_notify_flags ib_srq_attr_mask
		ib_sig_type ib_qp_attr_mask ib_qp_state ib_mig_state ib_mw_type ib_send_flags ib_mr_rereg_flags ib_cq_attr_mask
		ib_wq_state ib_wq_attr_mask ib_tm_cap_flags ib_flow_attr_type ib_flow_spec_type ib_flow_flags`},
	{"include/rdma/rdma_cm.h", "rdma_cm_event_type"},
}

// kernelSources are the files that declare methods, with the methods' driver.
var kernelSources = []struct{ glob, driver string }{
	{"drivers/infiniband/core/uverbs_std_types*.c", ""},
	{"drivers/infiniband/core/uverbs_cmd.c", ""},
	{"drivers/infiniband/hw/mlx5/*.c", "RDMA_DRIVER_MLX5"},
	{"drivers/infiniband/hw/efa/*.c", "RDMA_DRIVER_EFA"},
}

// The sizes in bytes of firmware structs that are minimum lengths of payloads.
var firmwareSizes = map[string]int{
	"MLX5_ST_SZ_BYTES(general_obj_in_cmd_hdr)":      16,
	"MLX5_ST_SZ_BYTES(general_obj_out_cmd_hdr)":     16,
	"MLX5_ST_SZ_BYTES(set_pp_rate_limit_context)":   48,
	"MLX5_UN_SZ_BYTES(set_add_copy_action_in_auto)": 8,
}

func readKernel(tree, headers string) (string, error) {
	var b strings.Builder
	for _, e := range kernelEnums {
		text, err := os.ReadFile(filepath.Join(tree, e.header))
		if err != nil {
			return "", err
		}
		src := stripComments(string(text))
		for tag := range strings.FieldsSeq(e.tags) {
			line, err := kernelEnum(headers, src, tag)
			if err != nil {
				return "", fmt.Errorf("%s: %w", e.header, err)
			}
			fmt.Fprintf(&b, "enum %s %s\n", tag, line)
		}
	}
	for _, s := range kernelSources {
		files, err := filepath.Glob(filepath.Join(tree, s.glob))
		if err != nil || len(files) == 0 {
			return "", fmt.Errorf("%s: no files (%v)", s.glob, err)
		}
		sort.Strings(files)
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return "", err
			}
			k := kernelFile{src: stripComments(string(text)), driver: s.driver, out: &b}
			if err := k.declarations(); err != nil {
				return "", fmt.Errorf("%s: %w", filepath.Base(f), err)
			}
		}
	}
	return b.String(), nil
}

var comment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

func stripComments(s string) string { return comment.ReplaceAllString(s, " ") }

// kernelEnum makes gcc evaluate an enum of an internal header.
func kernelEnum(headers, src, tag string) (string, error) {
	m := regexp.MustCompile(`enum ` + tag + `\s*\{([^}]*)\}`).FindStringSubmatch(src)
	if m == nil {
		return "", fmt.Errorf("no enum %s", tag)
	}
	unit := "#include <rdma/ib_user_verbs.h>\n" +
		"#define GENMASK(h, l) ((2ULL << (h)) - (1ULL << (l)))\n" +
		m[0] + ";\n"
	var names []string
	for _, n := range regexp.MustCompile(`(?:^|,)\s*([A-Z]\w*)`).FindAllStringSubmatch(m[1], -1) {
		if n[1] != "GENMASK" {
			names = append(names, n[1])
			unit += constantDecl(n[1])
		}
	}
	f, err := compileC(headers, unit)
	if err != nil {
		return "", fmt.Errorf("enum %s: %w", tag, err)
	}
	values, err := constants(f)
	if err != nil {
		return "", err
	}
	var words []string
	for _, n := range names {
		words = append(words, fmt.Sprintf("%s=%d", n, uint32(values[n])))
	}
	return strings.Join(words, " "), nil
}

// kernelFile extracts the declarations of methods from one C file.
type kernelFile struct {
	src    string
	driver string
	out    *strings.Builder
}

var declaration = regexp.MustCompile(`(?m)^\s*(DECLARE_UVERBS_\w+|ADD_UVERBS_\w+)\(`)

func (k *kernelFile) declarations() error {
	methods := map[string][]string{} // method: lines of its attributes
	type ref struct{ object, method string }
	var refs []ref
	for _, at := range declaration.FindAllStringSubmatchIndex(k.src, -1) {
		macro := k.src[at[2]:at[3]]
		args, err := arguments(k.src[at[3]:])
		if err != nil {
			return fmt.Errorf("%s: %w", macro, err)
		}
		switch macro {
		case "DECLARE_UVERBS_NAMED_METHOD", "DECLARE_UVERBS_NAMED_METHOD_DESTROY":
			lines, err := k.attributes(args[1:])
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			methods[args[0]] = lines
		case "DECLARE_UVERBS_NAMED_OBJECT", "DECLARE_UVERBS_GLOBAL_METHODS":
			for _, a := range args[1:] {
				if m := methodRef(a); m != "" {
					refs = append(refs, ref{args[0], m})
				}
			}
		case "ADD_UVERBS_METHODS":
			for _, a := range args[2:] {
				refs = append(refs, ref{args[1], methodRef(a)})
			}
		case "ADD_UVERBS_ATTRIBUTES_SIMPLE":
			lines, err := k.attributes(args[3:])
			if err != nil {
				return fmt.Errorf("%s: %w", args[2], err)
			}
			k.method(args[1], args[2], lines)
		case "DECLARE_UVERBS_OBJECT":
			if err := k.writeCommands(args); err != nil {
				return err
			}
		case "DECLARE_UVERBS_WRITE", "DECLARE_UVERBS_WRITE_EX": // inside DECLARE_UVERBS_OBJECT
		default:
			return fmt.Errorf("unknown %s", macro)
		}
	}
	for _, r := range refs {
		lines, ok := methods[r.method]
		if !ok {
			return fmt.Errorf("%s has no declaration", r.method)
		}
		k.method(r.object, r.method, lines)
	}
	return nil
}

func (k *kernelFile) method(object, method string, attrs []string) {
	driver := k.driver
	if driver == "" {
		driver = "core"
	}
	fmt.Fprintf(k.out, "method %s %s %s\n", driver, object, method)
	for _, a := range attrs {
		fmt.Fprintf(k.out, "%s\n", a)
	}
}

func methodRef(arg string) string {
	name, ok := strings.CutPrefix(arg, "&UVERBS_METHOD(")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(name, ")")
}

// attributes converts each UVERBS_ATTR_* macro to a line.
func (k *kernelFile) attributes(macros []string) ([]string, error) {
	var lines []string
	for _, m := range macros {
		name, rest, _ := strings.Cut(m, "(")
		args, err := arguments("(" + rest)
		if err != nil {
			return nil, err
		}
		kind := strings.TrimPrefix(name, "UVERBS_ATTR_")
		if kind == "UHW" {
			lines = append(lines,
				"attr UVERBS_ATTR_UHW_IN PTR_IN MIN_SIZE 0", "attr UVERBS_ATTR_UHW_OUT PTR_OUT MIN_SIZE 0")
			continue
		}
		line := []string{"attr", args[0], kind}
		args = args[1:]
		var elems []string
		switch kind {
		case "IDR", "FD":
			line = append(line, args[0], strings.TrimPrefix(args[1], "UVERBS_ACCESS_"))
			args = args[2:]
		case "IDRS_ARR":
			line = append(line, args[0], strings.TrimPrefix(args[1], "UVERBS_ACCESS_"), k.size(args[2]), k.size(args[3]))
			args = args[4:]
		case "PTR_IN", "PTR_OUT":
			line = append(line, k.payload(args[0])...)
			args = args[1:]
		case "CONST_IN", "FLAGS_IN":
			line = append(line, strings.TrimPrefix(args[0], "enum "))
			args = args[1:]
		case "ENUM_IN":
			if elems, err = k.enumElems(args[0]); err != nil {
				return nil, err
			}
			args = args[1:]
		case "RAW_FD", "UMEM":
		default:
			return nil, fmt.Errorf("unknown %s", name)
		}
		for _, a := range args {
			switch a {
			case "UA_MANDATORY":
				line = append(line, "MANDATORY")
			case "UA_OPTIONAL", "UA_ALLOC_AND_COPY":
			default:
				return nil, fmt.Errorf("%s: unknown %s", line[1], a)
			}
		}
		lines = append(lines, strings.Join(line, " "))
		lines = append(lines, elems...)
	}
	return lines, nil
}

// payload converts UVERBS_ATTR_TYPE(u32) and the like to words.
func (k *kernelFile) payload(macro string) []string {
	name, rest, _ := strings.Cut(macro, "(")
	args, _ := arguments("(" + rest)
	words := []string{strings.TrimPrefix(name, "UVERBS_ATTR_")}
	for i, a := range args {
		if words[0] == "STRUCT" && i == 1 {
			words = append(words, a)
		} else {
			words = append(words, k.size(a))
		}
	}
	return words
}

// size returns a number, or the name of a type of that size.
func (k *kernelFile) size(expr string) string {
	expr = strings.ReplaceAll(strings.Join(strings.Fields(expr), " "), "( ", "(")
	if n, ok := firmwareSizes[expr]; ok {
		return strconv.Itoa(n)
	}
	if t, ok := strings.CutPrefix(expr, "sizeof("); ok {
		expr = strings.TrimSuffix(t, ")")
	}
	if m := regexp.MustCompile(`#define ` + regexp.QuoteMeta(expr) + `\s+(\d+)`).FindStringSubmatch(k.src); m != nil {
		return m[1]
	}
	return strings.TrimPrefix(expr, "struct ")
}

// enumElems returns the payload lengths of an UVERBS_ATTR_ENUM_IN, from its array. The
// elements are in ascending order.
func (k *kernelFile) enumElems(array string) ([]string, error) {
	_, body, ok := strings.Cut(k.src, array+"[] = {")
	if !ok {
		return nil, fmt.Errorf("no array %s", array)
	}
	body, _, _ = strings.Cut(body, "\n};")
	var lines []string
	for _, m := range regexp.MustCompile(`(?s)\[(\w+)\] = \{(.*?)\n\t\}`).FindAllStringSubmatch(body, -1) {
		length := "0"
		if n := regexp.MustCompile(`\.len = sizeof\((\w+)\)`).FindStringSubmatch(m[2]); n != nil {
			length = n[1]
		} else if !strings.Contains(m[2], "UVERBS_ATTR_NO_DATA()") {
			return nil, fmt.Errorf("%s: cannot read %s", array, m[1])
		}
		lines = append(lines, fmt.Sprintf("elem %s", length))
	}
	return lines, nil
}

// writeCommands extracts the commands of one DECLARE_UVERBS_OBJECT.
func (k *kernelFile) writeCommands(args []string) error {
	for _, a := range args[1:] {
		name, rest, _ := strings.Cut(a, "(")
		if !strings.HasPrefix(name, "DECLARE_UVERBS_WRITE") {
			continue
		}
		cmd, err := arguments("(" + rest)
		if err != nil {
			return err
		}
		desc, rest, ok := strings.Cut(cmd[2], "(")
		if !ok {
			return fmt.Errorf("%s: no description", cmd[0])
		}
		types, err := arguments("(" + rest)
		if err != nil {
			return err
		}
		for i := range types {
			types[i] = strings.TrimPrefix(types[i], "struct ")
		}
		fmt.Fprintf(k.out, "write %s %s %s %s\n", args[0], cmd[0], strings.TrimPrefix(desc, "UAPI_DEF_WRITE_"), strings.Join(types, " "))
	}
	return nil
}

// arguments splits the arguments of a macro, in the parentheses at the start of s.
func arguments(s string) ([]string, error) {
	var args []string
	depth, start := 0, 1
	for i, c := range s {
		switch c {
		case '(':
			depth++
		case ')', ',':
			if c == ')' {
				depth--
			}
			if depth == 0 || c == ',' && depth == 1 {
				if a := strings.Join(strings.Fields(s[start:i]), " "); a != "" {
					args = append(args, a)
				}
				start = i + 1
			}
			if depth == 0 {
				return args, nil
			}
		}
	}
	return nil, fmt.Errorf("unbalanced parentheses")
}

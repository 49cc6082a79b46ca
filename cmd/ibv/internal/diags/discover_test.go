package diags

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// aPort returns a port whose fields have these values.
func aPort(n *node, number int, values map[string]uint64) *port {
	p := &port{node: n, number: number, guid: 0x10, info: make([]byte, 64)}
	for name, v := range values {
		find(portInfo, name).put(p.info, v)
	}
	n.ports[number] = p
	return p
}

func aNode(kind, guid uint64) *node {
	n := &node{info: make([]byte, 64), description: make([]byte, 64), switches: make([]byte, 64), ports: make(map[int]*port)}
	find(nodeInfo, "NodeType").put(n.info, kind)
	find(nodeInfo, "Guid").put(n.info, guid)
	return n
}

// A link that is slower or narrower than both its ends allow has a remark.
func TestCould(t *testing.T) {
	const extended = 1 << 14
	a, b := aNode(1, 1), aNode(1, 2)
	for _, c := range []struct {
		what string
		a, b map[string]uint64
		want string
	}{
		{"LinkWidth", map[string]uint64{"LinkWidthSupported": 3, "LinkWidthActive": 1}, map[string]uint64{"LinkWidthSupported": 7}, "Could be 4X"},
		{"LinkWidth", map[string]uint64{"LinkWidthSupported": 3, "LinkWidthActive": 2}, map[string]uint64{"LinkWidthSupported": 7}, ""},
		{"LinkWidth", map[string]uint64{"LinkWidthSupported": 19, "LinkWidthActive": 1}, map[string]uint64{"LinkWidthSupported": 17}, "Could be 2X"},
		{"LinkSpeed", map[string]uint64{"LinkSpeedSupported": 7, "LinkSpeedActive": 1}, map[string]uint64{"LinkSpeedSupported": 3}, "Could be 5.0 Gbps"},
		{"LinkSpeed", map[string]uint64{"CapMask": extended, "LinkSpeedExtSupported": 3, "LinkSpeedExtActive": 1},
			map[string]uint64{"CapMask": extended, "LinkSpeedExtSupported": 3, "LinkSpeedExtActive": 1}, "Could be 25.78125 Gbps"},
		{"LinkSpeed", nil, nil, ""},
	} {
		p := aPort(a, 1, c.a)
		p.remote = aPort(b, 1, c.b)
		if got := p.could(c.what); got != c.want {
			t.Errorf("%s of %v and %v: %q, want %q", c.what, c.a, c.b, got, c.want)
		}
	}
}

// Nodes of all types, links of all states, and values that should not be, have their lines.
func TestTopology(t *testing.T) {
	router, unknown := aNode(3, 0xabc), aNode(9, 0xdef)
	copy(router.description, "R \x1b1")
	aPort(router, 1, map[string]uint64{"LinkWidthActive": 3, "LinkSpeedActive": 3, "LinkState": 4, "PhysLinkState": 5, "Lid": 7}).remote = aPort(unknown, 2, nil)
	aPort(router, 2, map[string]uint64{"LinkState": 1, "PhysLinkState": 2})
	aPort(router, 3, map[string]uint64{"LinkState": 2, "PhysLinkState": 5, "LinkWidthActive": 2})
	f := &Fabric{from: router, nodes: []*node{router, unknown}}
	var b strings.Builder
	f.hops, f.smps = 2, 9
	f.Topology(&b, true, true)
	if want := "# Reported max hops discovered: 2\n# Total MADs used: 9\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%q lacks %q", b.String(), want)
	}
	_, got, _ := strings.Cut(b.String(), "# Initiated from ")
	if want := "node 0000000000000abc port 0000000000000000\n\nvendid=0x0\ndevid=0x0\nrtguid=0xabc\nRt\t0 \"R-0000000000000abc\"\t\t# \"R  1\"\n" +
		"[1](10) \t\"?-0000000000000def\"[2] (10) \t\t# lid 7 lmc 0 \"\" lid 0 ?????" + " s=3 w=3 v=0\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.Reset()
	f.Links(&b, "", false, false)
	for _, want := range []string{
		"Router: R  1:\n      0x0000000000000010      7    1[  ] ==(undefined (3)      undefined (3) Active/  LinkUp)==>       0    2[  ] \"\" ( )\n",
		"      0x0000000000000010      0    2[  ] ==(                Down/ Polling)==>             [  ] \"\" ( )\n",
		"==( 4X     Extended speed Initialize/  LinkUp)==>      \"Port not available\"\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks %q", b.String(), want)
		}
	}
	b.Reset()
	f.Ports(&b)
	for _, want := range []string{
		"RT     7  1 0x0000000000000010 ?? ??? - ??     0  2 0x0000000000000010 ( 'R  1' - '' )\n",
		fmt.Sprintf("RT     0  2 0x0000000000000010 ?? ???%36s'R  1'\n", ""),
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q lacks %q", b.String(), want)
		}
	}
	b.Reset()
	f.Links(&b, "", true, true)
	if n := strings.Count(b.String(), "\n"); n != 1 || !strings.HasPrefix(b.String(), "0x0000000000000010 \"") {
		t.Errorf("%d lines: %q", n, b.String())
	}
	b.Reset()
	if f.Links(&b, "S", false, false); b.Len() > 0 {
		t.Errorf("there is no switch: %q", b.String())
	}
	if f.List(&b, "R"); b.String() != "Router\t : 0x0000000000000abc ports 0 devid 0x0 vendid 0x0 \"R  1\"\n" {
		t.Errorf("%q", b.String())
	}
}

// The picture is well-formed, whatever nodes are called, has each link once, and lies in its frame.
func TestPicture(t *testing.T) {
	top, other := aNode(2, 1), aNode(2, 2)
	copy(top.description, `<evil> & "co"`)
	aPort(top, 0, nil)
	aPort(other, 0, nil)
	f := &Fabric{from: top, nodes: []*node{top, other}}
	connect := func(a *node, i int, b *node, k int, state uint64) {
		p, q := aPort(a, i, map[string]uint64{"LinkState": state}), aPort(b, k, nil)
		p.remote, q.remote = q, p
	}
	connect(top, 1, other, 1, 4)
	for i := range 3 {
		n := aNode(1, uint64(10+i))
		f.nodes = append(f.nodes, n)
		connect(top, 2+i, n, 1, uint64(2+i))
	}
	text := string(f.picture().SVG())
	d := xml.NewDecoder(strings.NewReader(text))
	elements := make(map[string]int)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	if elements["path"] != 4 || elements["rect"] != 1+5 || elements["text"] != 2+4+2*5 || strings.Count(text, "stroke-dasharray") != 2 {
		t.Errorf("%v in %s", elements, text)
	}
	if !strings.Contains(text, `viewBox="0 0 860 `) || !strings.Contains(text, "&lt;evil&gt; &amp;") {
		t.Error(text)
	}
}

// The ends of a path have the lines of ibtracert, also for a node of unknown type.
func TestHops(t *testing.T) {
	n := aNode(9, 0xabc)
	copy(n.description, "x\x07y")
	p := aPort(n, 1, map[string]uint64{"Lid": 8, "LMC": 2})
	find(nodeInfo, "LocalPort").put(n.info, 3)
	h := hop{n.info, n.description, p.info}
	var b strings.Builder
	h.end(&b, "From", false)
	find(nodeInfo, "NodeType").put(n.info, aSwitch)
	h.end(&b, "To", true)
	if want := "From ??? {0x0000000000000abc} portnum 3 lid 8-11 \"x y\"\nTo {0x0000000000000abc}[0]\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// TestNames: a file gives nodes their names.
func TestNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	for text, want := range map[string]string{
		"# none\n\n 0x2a \"the switch\" # here\n0x2a \"again\"\n7 plain\n8\n": "the switch",
		"0x2b \"another\"\n":        "itself",
		"0x2a \"one\"\nx \"two\"\n": "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		all, err := readNames(path)
		if (err != nil) != (want == "") {
			t.Errorf("%q: %v", text, err)
		}
		if got := string(all.of(42, []byte("itself"))); err == nil && got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if _, err := readNames(path + "no"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

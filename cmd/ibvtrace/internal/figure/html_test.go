package figure

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// An element is a tag of a page.
type element struct {
	name  string
	attrs map[string]string
}

// pageOf returns a figure's page and its elements. It checks that elements are closed, except
// meta, which has no end tag.
func pageOf(t *testing.T, f *Figure) (page []byte, all []element) {
	t.Helper()
	var b bytes.Buffer
	if err := f.HTML(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta"}, xml.HTMLEntity
	for {
		switch tok, err := d.Token(); tok := tok.(type) {
		case nil:
			if err != io.EOF {
				t.Fatalf("the page: %v", err)
			}
			return b.Bytes(), all
		case xml.StartElement:
			e := element{tok.Name.Local, make(map[string]string)}
			for _, a := range tok.Attr {
				if e.attrs[a.Name.Local] != "" {
					t.Errorf("<%s> has two %s", e.name, a.Name.Local)
				}
				e.attrs[a.Name.Local] = a.Value
			}
			all = append(all, e)
		}
	}
}

// TestPage: the page is complete, loads nothing, and its links lead to elements of the page.
func TestPage(t *testing.T) {
	f := New()
	f.Title = "A connection"
	a, b := pair(f)
	a.connect()
	b.connect()
	for range 3 {
		a.send("SEND")
		b.poll("RECV")
	}
	page, all := pageOf(t, f)

	if n := strings.Count(string(page), "://"); n != 1 || !strings.Contains(string(page), `xmlns="http://www.w3.org/2000/svg"`) {
		t.Errorf("%d URLs besides SVG's namespace", n-1)
	}
	if strings.Count(string(page), "url(") != strings.Count(string(page), "url(#") {
		t.Error("a style leads elsewhere")
	}
	for _, what := range []string{"@import", "srcset", "javascript:"} {
		if strings.Contains(string(page), what) {
			t.Errorf("%s is in the page", what)
		}
	}
	ids := make(map[string]bool)
	count := make(map[string]int)
	for _, e := range all {
		count[e.name]++
		if id := e.attrs["id"]; id != "" {
			if ids[id] {
				t.Errorf("two elements have the id %s", id)
			}
			ids[id] = true
		}
	}
	links := 0
	for _, e := range all {
		for name, value := range e.attrs {
			switch name {
			case "src", "action", "data", "poster", "background":
				t.Errorf("<%s %s=%q>", e.name, name, value)
			case "href":
				links++
				if !strings.HasPrefix(value, "#") || !ids[value[1:]] {
					t.Errorf("a link to %q, which is not on the page", value)
				}
			}
		}
	}
	if links < 6 || links != count["li"] {
		t.Errorf("%d links to %d lines", links, count["li"])
	}
	for _, name := range []string{"html", "head", "title", "body", "svg", "main"} {
		if count[name] == 0 {
			t.Errorf("no <%s>", name)
		}
	}
	for _, name := range []string{"script", "link", "img", "iframe", "object", "embed", "use", "image"} {
		if count[name] != 0 {
			t.Errorf("a <%s>", name)
		}
	}

	// The figure by itself is XML.
	from, to := bytes.Index(page, []byte("<svg")), bytes.Index(page, []byte("</svg>"))
	if from < 0 || to < from {
		t.Fatal("no figure")
	}
	if text := wellFormed(t, page[from:to+len("</svg>")]); !strings.Contains(text, "3 messages") {
		t.Errorf("the figure's text is %q", text)
	}
}

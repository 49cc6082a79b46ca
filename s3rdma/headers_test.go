package s3rdma

import (
	"net/http"
	"strings"
	"testing"
)

func TestWanted(t *testing.T) {
	for header, want := range map[string]struct {
		n         int
		whole, ok bool
	}{
		"":                            {0, true, true},
		"bytes=0-0":                   {1, false, true},
		"bytes=5-104":                 {100, false, true},
		"bytes=7-":                    {0, true, true},
		"bytes=-7":                    {7, false, true},
		"bytes=0-1073741823":          {MaxBytes, false, true},
		"bytes=0-1073741824":          {MaxBytes + 1, false, false},
		"bytes=-1073741825":           {MaxBytes + 1, false, false},
		"bytes=5-4":                   {0, false, false},
		"bytes=-0":                    {0, false, false},
		"bytes=0-1,5-6":               {0, false, false},
		"bytes":                       {0, false, false},
		"items=0-1":                   {0, false, false},
		"bytes=a-1":                   {2, false, false},
		"bytes=0-9223372036854775807": {0, false, false},
	} {
		n, whole, ok := wanted(header)
		if ok != want.ok || whole != want.whole || ok && n != want.n {
			t.Errorf("%q: %d, whole %v, ok %v; want %+v", header, n, whole, ok, want)
		}
	}
}

// FuzzWanted: a Range that is accepted asks for a number of bytes within the limits.
func FuzzWanted(f *testing.F) {
	f.Add("bytes=5-104")
	f.Fuzz(func(t *testing.T, header string) {
		if n, whole, ok := wanted(header); ok && (whole != (n == 0) || n < 0 || n > MaxBytes) {
			t.Errorf("%q: %d, whole %v", header, n, whole)
		}
	})
}

// FuzzReply: what a server says of a GET is believed only within the window.
func FuzzReply(f *testing.F) {
	f.Add("206", "100", "bytes 0-99/1000", int64(0))
	f.Fuzz(func(t *testing.T, code, count, contentRange string, length int64) {
		resp := &http.Response{StatusCode: http.StatusOK, ContentLength: length, Header: http.Header{headerReply: {code}, headerBytes: {count}, "Content-Range": {contentRange}}}
		r := replyOf(resp)
		if r.fits(resp, 1000) && (r.bytes < 0 || r.bytes > 1000 || length > 0) {
			t.Errorf("%q %q %q %d: %+v", code, count, contentRange, length, r)
		}
		if r.moved != (r.code == 200 || r.code == 204 || r.code == 206) {
			t.Errorf("%q: %+v", code, r)
		}
	})
}

// FuzzPrepare: a PREPARE that is accepted is within the limits, and names an object.
func FuzzPrepare(f *testing.F) {
	f.Add("GET", exampleRC, "000001", "00000001", "/bucket/x", "100", "7")
	f.Fuzz(func(t *testing.T, op, token, psn, cookie, target, size, offset string) {
		h := http.Header{headerOp: {op}, headerToken: {token}, headerPSN: {psn}, headerCookie: {cookie}, headerTarget: {target}, headerSize: {size}, headerOffset: {offset}}
		x, err := parsePrepare(&http.Request{Header: h})
		if err != nil {
			return
		}
		if x.size < 1 || x.size > MaxBytes || x.offset < 0 || x.offset+int64(x.size) < 0 || x.method != "GET" && x.method != "PUT" || x.method == "PUT" && x.offset != 0 ||
			!strings.HasPrefix(x.target.Path, "/") || strings.HasPrefix(x.target.Path, rcPath) || x.target.Host != "" || x.target.RawQuery != "" || x.peer.PSN > 0xffffff {
			t.Errorf("%q is accepted as %+v", h, x)
		}
	})
}

// FuzzHeaders: the Client's end of a connection comes from a reply that is whole.
func FuzzHeaders(f *testing.F) {
	f.Add("0123456789abcdef0123456789abcdef", "200:"+exampleRC, "000001", "7f00", "1234")
	f.Fuzz(func(t *testing.T, session, reply, psn, addr, key string) {
		h := make(http.Header)
		for name, value := range map[string]string{headerSession: session, headerReply: reply, headerPSN: psn, headerMRAddr: addr, headerMRRKey: key} {
			h.Set(name, value)
		}
		op := new(rcOp)
		peer, _, err := op.parse(h)
		if err == nil && (len(op.session) != 32 || peer.QPN > 0xffffff || peer.PSN > 0xffffff) {
			t.Errorf("%q is accepted as %+v", h, peer)
		}
	})
}

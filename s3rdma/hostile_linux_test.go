package s3rdma

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

// TestHostileClient plays seeded rounds of requests with forged tokens, wrong lengths and ranges, and connections that
// break. The server stays alive, moves the right bytes for the honest ones, and writes nothing outside the memory
// that a token names.
func TestHostileClient(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true}, ServerOptions{ChunkBytes: 512, MaxTransfers: 2}, nil)
	const size = 1 << 15
	mr := must(r.client.PD().AllocMR(size, verbs.MROptions{Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite}))(t)
	defer mr.Close()
	other := must(r.client.PD().AllocMR(size, verbs.MROptions{Access: mr.Access()}))(t)
	defer other.Close()
	mem := mr.Bytes()
	object := random(5000)
	const requests = 10
	rdmatest.Rounds(t, 20, requests, func(rnd *rand.Rand) {
		for range requests {
			r.store.set("/bucket/x", object)
			for i := range mem {
				mem[i] = 0xa5
			}
			off := rnd.IntN(size / 2)
			n := 1 + rnd.IntN(size/2)
			token := Token{Addr: mr.Addr() + uint64(off), Size: uint32(n), RKey: mr.RKey(), DCTN: 1, GID: r.client.port.GID}
			method, bytesRange, honest := http.MethodGet, "", false
			if rnd.IntN(3) == 0 {
				method = http.MethodPut
			}
			switch rnd.IntN(8) {
			case 0:
				token.RKey ^= 1 << rnd.IntN(32)
			case 1:
				token.Addr = rnd.Uint64N(1 << 63)
			case 2: // beyond the registered memory
				token.Size = uint32(size + rnd.IntN(MaxBytes-size))
			case 3:
				token.DCTN = 1 + rnd.Uint32N(1<<24-1) // RC lanes have one peer
			default:
				honest = true
			}
			text := token.String()
			switch rnd.IntN(10) {
			case 0:
				b := []byte(text)
				b[rnd.IntN(len(b))] = byte(33 + rnd.IntN(94))
				text, honest = string(b), false
			case 1:
				text, honest = text[:rnd.IntN(len(text))], false
			case 2:
				text += fmt.Sprintf(":%016x:%016x", token.Addr, uint64(token.Size))
			}
			if rnd.IntN(2) == 0 {
				bytesRange = fmt.Sprintf("bytes=%d-%d", rnd.IntN(6000), rnd.IntN(6000))
			}
			if rnd.IntN(8) == 0 {
				// It may be served at any later time.
				token.Addr, token.Size, token.RKey = other.Addr(), size, other.RKey()
				breakOff(t, r, rnd, method, token.String())
				continue
			}
			req := must(http.NewRequestWithContext(t.Context(), method, r.web.URL+"/bucket/x", nil))(t)
			req.Header.Set(headerToken, text)
			if bytesRange != "" && method == http.MethodGet {
				req.Header.Set("Range", bytesRange)
			}
			resp := must(r.seen.RoundTrip(req))(t)
			body := must(io.ReadAll(resp.Body))(t)
			check(t, resp.Body.Close())
			reply := replyOf(resp)
			if honest && (resp.StatusCode == http.StatusInternalServerError || resp.StatusCode == http.StatusBadRequest) {
				t.Errorf("an honest %s with %s: %s, %s", method, text, resp.Status, body)
			}
			switch {
			case !reply.moved || text != token.String() && !strings.HasPrefix(text, token.String()+":"):
			case method == http.MethodPut:
				if !bytes.Equal(r.store.get("/bucket/x"), bytes.Repeat([]byte{0xa5}, int(token.Size))) {
					t.Errorf("PUT with %s stored others", text)
				}
			default:
				first := 0
				fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-", &first)
				if !bytes.Equal(mem[off:off+int(reply.bytes)], object[first:first+int(reply.bytes)]) {
					t.Errorf("GET with %s wrote others", text)
				}
			}
			if strings.HasPrefix(text, token.String()) && int(token.Addr-mr.Addr()) == off && token.Size == uint32(n) {
				wantUntouched(t, mem[:off])
				wantUntouched(t, mem[off+n:])
			}
		}
	})
	until(t, func() bool { r.server.mu.Lock(); defer r.server.mu.Unlock(); return r.server.active == 0 })
	if n := len(r.server.clients); n != 0 {
		t.Errorf("the server remembers %d clients", n)
	}
	r.store.set("/bucket/x", object)
	if _, got := r.get(t, "/bucket/x", ""); !bytes.Equal(got, object) || r.client.Stats().Gets != 1 {
		t.Errorf("after all that, %d bytes, and %+v", len(got), r.client.Stats())
	}
}

func wantUntouched(t testing.TB, mem []byte) {
	t.Helper()
	for i, b := range mem {
		if b != 0xa5 {
			t.Fatalf("byte %d of %d outside the token was written", i, len(mem))
		}
	}
}

// breakOff sends a part of a request, or all of it, and hangs up.
func breakOff(t testing.TB, r *rig, rnd *rand.Rand, method, token string) {
	t.Helper()
	c := must(net.Dial("tcp", r.web.Listener.Addr().String()))(t)
	text := fmt.Sprintf("%s /bucket/x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n%s: %s\r\n\r\n", method, headerToken, token)
	must(io.WriteString(c, text[:len(text)-rnd.IntN(2)*rnd.IntN(len(text))]))(t)
	check(t, c.Close())
}

// TestHostileServer plays seeded rounds of answers that lie. The Client returns each body with the length that it
// claims, or an error, and loses none of its memory.
func TestHostileServer(t *testing.T) {
	r := newRig(t, ClientOptions{MinBytes: 1, Assume: true, GetBytes: 1 << 14, MemoryBytes: 1 << 17}, ServerOptions{}, nil)
	pick := func(rnd *rand.Rand, of ...string) string { return of[rnd.IntN(len(of))] }
	const requests = 20
	rdmatest.Rounds(t, 20, requests, func(rnd *rand.Rand) {
		for range requests {
			r.seen.next = roundTripper(func(req *http.Request) (*http.Response, error) {
				if rnd.IntN(10) == 0 {
					if req.Body != nil {
						req.Body.Close()
					}
					return nil, io.ErrUnexpectedEOF
				}
				if req.Body != nil {
					io.CopyN(io.Discard, req.Body, int64(rnd.IntN(1000)))
					req.Body.Close()
				}
				body := random(rnd.IntN(3) * rnd.IntN(20_000))
				resp := &http.Response{
					StatusCode: []int{200, 200, 200, 204, 206, 301, 400, 403, 404, 500, 501, 503}[rnd.IntN(12)], Header: make(http.Header),
					Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req, ProtoMajor: 1, ProtoMinor: 1,
				}
				if rnd.IntN(4) == 0 {
					resp.ContentLength = int64(rnd.IntN(30_000)) - 1
				}
				if s := pick(rnd, "200", "200", "206", "204", "501", "500", "", "x", "-1", "200:", "999999999999999999999"); s != "" {
					resp.Header.Set(headerReply, s)
				}
				if s := pick(rnd, strconv.Itoa(rnd.IntN(40_000)), "0", "-1", "x", "", "18446744073709551617", "1e3"); s != "" {
					resp.Header.Set(headerBytes, s)
				}
				if s := pick(rnd, "", "bytes 0-99/100", "bytes 9223372036854775807-1/2", "bytes */0", "x"); s != "" {
					resp.Header.Set("Content-Range", s)
				}
				return resp, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			req := must(http.NewRequestWithContext(ctx, http.MethodGet, r.web.URL+"/bucket/x", nil))(t)
			if rnd.IntN(2) == 0 {
				n := 1 + rnd.IntN(20_000)
				req.Method, req.Body, req.ContentLength = http.MethodPut, io.NopCloser(bytes.NewReader(random(n))), int64(n)
			} else if rnd.IntN(2) == 0 {
				req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", rnd.IntN(100), rnd.IntN(20_000)))
			}
			resp, err := r.client.RoundTrip(req)
			if err == nil {
				b, err := io.ReadAll(resp.Body)
				if _, ours := resp.Body.(*body); ours && (err != nil || int64(len(b)) != resp.ContentLength) {
					t.Errorf("a body of %d bytes has %d, %v", resp.ContentLength, len(b), err)
				}
				check(t, resp.Body.Close())
			} else if resp != nil {
				t.Errorf("both an answer and %v", err)
			}
			cancel()
		}
	})
	// All memory is free: as much as there is can be deregistered.
	r.client.pool.end()
	if n := r.client.pool.bytes; n != 0 {
		t.Errorf("%d bytes are lost", n)
	}
}

package firmware

import (
	"testing"
	"time"
)

// TestPaceLimits: send queues name entries of the table that are there, and send at their
// rates.
func TestPaceLimits(t *testing.T) {
	d := startedOf(t, true)
	domain := int(d.do(0x816, nil).Get("transport_domain"))
	q := d.raw(domain, false)
	limit := func(index, rate, burst int) []any {
		return []any{"rate_limit_index", index, "ctx.rate_limit", rate, "ctx.burst_upper_bound", burst}
	}
	pace := func(index int) []any {
		return []any{"sqn", q.sqn, "sq_state", sqReady, "ctx.state", sqReady, "modify_bitmask", modifyPace, "ctx.packet_pacing_rate_limit_index", index}
	}
	for _, bad := range [][]any{limit(0, 1000, 0), limit(paces, 1000, 0), limit(1, maxPace+1, 0), limit(1, 0, 1)} {
		d.refused(BadParam, 0x780, set(bad...))
	}
	d.refused(BadRes, 0x905, set(pace(1)...))
	// take sends two frames and returns how long the second one waited.
	frame := make([]byte, 1500)
	take := func() time.Duration {
		t.Helper()
		begin := d.h.c.Now()
		for range 2 {
			q.send(frame, 0)
			if q.next() == nil {
				t.Error("a frame didn't leave")
			}
		}
		return d.h.c.Now() - begin
	}
	const rate, each = 1000, 12 * time.Millisecond // 1500 bytes by kb/s
	d.do(0x780, set(limit(1, rate, 0)...))
	d.do(0x905, set(pace(1)...))
	if took := take(); took < each {
		t.Errorf("with a limit: %v, want at least %v", took, each)
	}
	d.do(0x905, set(pace(0)...))
	if took := take(); took >= each {
		t.Errorf("without a limit: %v", took)
	}
	d.do(0x780, set(limit(1, 0, 0)...))
	d.refused(BadRes, 0x905, set(pace(1)...))
}

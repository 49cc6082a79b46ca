package mlx5dv

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/mlx5dv"
	"github.com/goverbs/goverbs/verbs"
)

// TestPacing: equal limits share an entry of the table, unless one is dedicated.
func TestPacing(t *testing.T) {
	c := open(t, rdmatest.Device)
	limits := rdmatest.Must(c.QueryDevice())(t).PacketPacing
	ask := func(dedicated bool, r verbs.RateLimit) (*mlx5dv.Pacing, error) {
		return mlx5dv.AllocPacing(c, mlx5dv.PacingOptions{Limit: r, Dedicated: dedicated})
	}
	if limits.QPRateLimitMax == 0 {
		if _, err := ask(false, verbs.RateLimit{Rate: 1000}); !errors.Is(err, verbs.ErrNotSupported) {
			t.Errorf("without rate limits: %v", err)
		}
		return
	}
	one := rdmatest.Must(ask(false, verbs.RateLimit{Rate: 1000}))(t)
	same := rdmatest.Must(ask(false, verbs.RateLimit{Rate: 1000}))(t)
	own := rdmatest.Must(ask(true, verbs.RateLimit{Rate: 1000}))(t)
	faster := rdmatest.Must(ask(false, verbs.RateLimit{Rate: 2000}))(t)
	burst := rdmatest.Must(ask(false, verbs.RateLimit{Rate: 2000, MaxBurst: 9000}))(t)
	typical := rdmatest.Must(ask(false, verbs.RateLimit{Rate: 2000, MaxBurst: 9000, TypicalPacket: 1500}))(t)
	if one.Index() == 0 || same.Index() != one.Index() {
		t.Errorf("equal limits have the entries %d and %d", one.Index(), same.Index())
	}
	seen := map[uint16]bool{0: true}
	for i, p := range []*mlx5dv.Pacing{one, own, faster, burst, typical} {
		if seen[p.Index()] {
			t.Errorf("limit %d has the entry %d, as another does", i, p.Index())
		}
		seen[p.Index()] = true
	}
	for _, rate := range []uint32{0, limits.QPRateLimitMax + 1} {
		if _, err := ask(false, verbs.RateLimit{Rate: rate}); err == nil {
			t.Errorf("%d kb/s is accepted", rate)
		}
	}
	for _, p := range []*mlx5dv.Pacing{one, same, own, faster, burst, typical} {
		rdmatest.Close(t, p)
		rdmatest.Close(t, p)
	}
}

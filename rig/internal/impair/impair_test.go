package impair

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	got, err := Parse("loss=1%,reorder=5%,duplicate=100%,corrupt=0.1%,delay=2ms,jitter=10us,flap=10s,seed=7")
	want := Impairments{
		Loss: 0.01, Reorder: 0.05, Duplicate: 1, Corrupt: 0.001,
		Delay: 2 * time.Millisecond, Jitter: 10 * time.Microsecond, Flap: 10 * time.Second, Seed: 7,
	}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := Parse(""); err != nil || got != (Impairments{Seed: 1}) {
		t.Errorf("nothing gives %+v, %v", got, err)
	}
	for _, bad := range []string{
		"loss", "loss=1", "loss=101%", "loss=-1%", "loss=NaN%", "delay=1", "delay=-1s", "flap=1s", "seed=-1", "mood=bad", "loss=1%,",
	} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

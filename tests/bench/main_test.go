package main

import (
	"strings"
	"testing"
)

func TestFigure(t *testing.T) {
	const out = "8192000 bytes in 0.22 seconds = 292.56 Mbit/sec\n1000 iters in 0.22 seconds = 224.01 usec/iter\n"
	if v, err := figure(out, "usec/iter"); v != 224.01 || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	for _, bad := range []string{"", "inf MiB/s", "0.00 MiB/s", "1.2.3 MiB/s"} {
		if v, err := figure(bad, "MiB/s"); err == nil {
			t.Errorf("%q gives %v", bad, v)
		}
	}
}

func TestRow(t *testing.T) {
	r := result{c: []float64{100, 200, 110, 120}, g: []float64{104, 204, 112, 121}}
	for _, test := range []struct {
		x    contest
		want string
	}{
		{contest{name: "time", unit: "µs", bar: 1.03}, "time, µs|100.00|115.00|104.00|116.50|1.040|1.008|1.019|≤ 1.03|best pair meets it, median meets it"},
		{contest{name: "rate", unit: "MiB/s", bar: 1.02, highest: true}, "rate, MiB/s|200.00|115.00|204.00|116.50|1.020|1.040|1.019|≥ 1.02|best pair meets it, median misses it"},
	} {
		if got := strings.Join(test.x.row(r), "|"); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

// C and Go alternate, and every other pair begins with Go.
func TestOrder(t *testing.T) {
	var order strings.Builder
	one := func(s string) func() (float64, error) {
		return func() (float64, error) {
			order.WriteString(s)
			return 1, nil
		}
	}
	x := contest{name: "order", unit: "none", c: one("C"), g: one("G")}
	if _, err := x.run(4); err != nil {
		t.Fatal(err)
	}
	if got, want := order.String(), "CGGCCGGC"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

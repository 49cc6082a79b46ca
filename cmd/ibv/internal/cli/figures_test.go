package cli

import "testing"

func TestFigures(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{SI(0, "b/s"), "0 b/s"},
		{SI(0.5, "pkt/s"), "0.5 pkt/s"},
		{SI(999.4, "b/s"), "999 b/s"},
		{SI(999.6, "b/s"), "1 kb/s"},
		{SI(1.2345e9, "b/s"), "1.23 Gb/s"},
		{SI(98765e12, "b/s"), "98765 Tb/s"},
		{SI(450, ""), "450"},
		{SI(3e6, ""), "3 M"},
		{SI(0, "s"), "0 s"},
		{SI(1.234e-7, "s"), "123 ns"},
		{SI(3.57e-3, "s"), "3.57 ms"},
		{SI(0.1375, "s"), "138 ms"},
		{SI(0.99951, "s"), "1 s"},
		{SI(4321, "s"), "4321 s"},
		{Bytes(0), "0 B"},
		{Bytes(12), "12 B"},
		{Bytes(1536), "1.5 KiB"},
		{Bytes(2 << 20), "2 MiB"},
		{Bytes(1<<64 - 1), "16 EiB"},
		{Bars([]float64{0, 1, 4, 7}), " ▂▅█"},
		{Bars([]float64{0, 0}), "  "},
		{Bars([]float64{1e-9, 1e9}), "▁█"},
		{Bars(nil), ""},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}

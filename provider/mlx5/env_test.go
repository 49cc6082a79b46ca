package mlx5

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/ioctl"
)

// TestEnvironment: libmlx5's variables set the number of registers to request from a kernel
// with a fixed set, and the limits with other kernels.
func TestEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name                    string
		set                     map[string]string
		noFlame                 bool
		asked, askedLow         uint32
		maxDedicated, maxCommon int
		refused                 string
	}{
		{name: "nothing", asked: 16, askedLow: 4, maxDedicated: 8, maxCommon: 8},
		{name: "BlueFlame off", set: map[string]string{"MLX5_SHUT_UP_BF": "1"}, noFlame: true, asked: 16, askedLow: 4, maxDedicated: 8, maxCommon: 8},
		{name: "empty", set: map[string]string{"MLX5_SHUT_UP_BF": ""}, noFlame: true, asked: 16, askedLow: 4, maxDedicated: 8, maxCommon: 8},
		{name: "BlueFlame on", set: map[string]string{"MLX5_SHUT_UP_BF": "0"}, asked: 16, askedLow: 4, maxDedicated: 8, maxCommon: 8},
		// At most 12 registers are shared.
		{name: "more", set: map[string]string{"MLX5_TOTAL_UUARS": "64"}, asked: 64, askedLow: 52, maxDedicated: 52, maxCommon: 12},
		{name: "odd", set: map[string]string{"MLX5_TOTAL_UUARS": "7"}, asked: 8, askedLow: 4, maxDedicated: 4, maxCommon: 4},
		{name: "low latency", set: map[string]string{"MLX5_NUM_LOW_LAT_UUARS": "15"}, asked: 16, askedLow: 15, maxDedicated: 15, maxCommon: 1},
		{
			name: "both", set: map[string]string{"MLX5_TOTAL_UUARS": " 6", "MLX5_NUM_LOW_LAT_UUARS": "0"},
			asked: 6, askedLow: 0, maxDedicated: 0, maxCommon: 6,
		},
		{name: "the most", set: map[string]string{"MLX5_TOTAL_UUARS": "512"}, asked: 512, askedLow: 500, maxDedicated: 500, maxCommon: 12},
		{name: "too many", set: map[string]string{"MLX5_TOTAL_UUARS": "513"}, refused: "the maximum is 512"},
		{name: "none", set: map[string]string{"MLX5_TOTAL_UUARS": "0"}, refused: "MLX5_TOTAL_UUARS=0"},
		{name: "all low latency", set: map[string]string{"MLX5_NUM_LOW_LAT_UUARS": "16"}, refused: "one must be shared"},
		{name: "negative", set: map[string]string{"MLX5_NUM_LOW_LAT_UUARS": "-1"}, refused: "MLX5_NUM_LOW_LAT_UUARS=-1"},
		{name: "no number", set: map[string]string{"MLX5_TOTAL_UUARS": "x"}, refused: "MLX5_TOTAL_UUARS=x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.set {
				t.Setenv(name, value)
			}
			cmd := ioctl.NewGetContext()
			defer cmd.Release()
			p, err := newContext(nil, cmd)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("error %v, want one about %s", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			u := &p.(*context).uars
			if u.noFlame != tt.noFlame || u.maxDedicated != tt.maxDedicated || u.maxCommon != tt.maxCommon {
				t.Errorf("no BlueFlame %t, %d and %d registers; want %t, %d, %d",
					u.noFlame, u.maxDedicated, u.maxCommon, tt.noFlame, tt.maxDedicated, tt.maxCommon)
			}
			env, err := readEnvironment()
			if err != nil || uint32(env.registers) != tt.asked || uint32(env.lowLatency) != tt.askedLow {
				t.Errorf("asks for %d registers, %d of them low latency, %v; want %d, %d", env.registers, env.lowLatency, err, tt.asked, tt.askedLow)
			}
		})
	}
}

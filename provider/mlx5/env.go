package mlx5

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// An environment has the values of libmlx5's variables for doorbell registers.
type environment struct {
	// noBlueFlame: MLX5_SHUT_UP_BF is set and not 0, so WQEs are never copied to registers.
	noBlueFlame bool
	// registers is MLX5_TOTAL_UUARS. lowLatency is MLX5_NUM_LOW_LAT_UUARS, the number of
	// registers for one QP each.
	registers, lowLatency int
	chosen                bool // either variable is set
}

// libmlx5's defaults and limits.
const (
	usualRegisters     = 16
	maxRegisters       = 512
	usualLowLatency    = 4
	maxMediumRegisters = 12 // registers that QPs share
)

func readEnvironment() (e environment, err error) {
	bf, ok := os.LookupEnv("MLX5_SHUT_UP_BF")
	e.noBlueFlame = ok && bf != "0"
	total, low := usualRegisters, usualLowLatency
	for _, v := range []struct {
		name  string
		value *int
		least int
	}{{"MLX5_TOTAL_UUARS", &total, 1}, {"MLX5_NUM_LOW_LAT_UUARS", &low, 0}} {
		text, ok := os.LookupEnv(v.name)
		if !ok {
			continue
		}
		e.chosen = true
		if *v.value, err = strconv.Atoi(strings.TrimSpace(text)); err != nil || *v.value < v.least {
			return e, fmt.Errorf("mlx5: %s=%s is not a number of at least %d", v.name, text, v.least)
		}
	}
	total = max(total, os.Getpagesize()/uarSize*usableRegisters)
	total += total % usableRegisters
	low = max(low, total-maxMediumRegisters)
	if total > maxRegisters || low >= total {
		return e, fmt.Errorf("mlx5: MLX5_TOTAL_UUARS and MLX5_NUM_LOW_LAT_UUARS ask for %d doorbell registers, %d of them for one QP each: the maximum is %d, and one must be shared",
			total, low, maxRegisters)
	}
	e.registers, e.lowLatency = total, low
	return e, nil
}

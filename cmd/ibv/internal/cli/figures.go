package cli

import (
	"fmt"
	"slices"
	"strings"
)

// SI returns a value with three digits, a prefix and its unit: "1.23 Gb/s". Only seconds become smaller
// units: "137 ms".
func SI(value float64, unit string) string {
	prefixes := []string{"n", "µ", "m", "", "k", "M", "G", "T"}
	i := 3
	for ; value >= 999.5 && i < len(prefixes)-1 && unit != "s"; i++ {
		value /= 1000
	}
	for ; value > 0 && value < 0.9995 && i > 0 && unit == "s"; i-- {
		value *= 1000
	}
	return strings.TrimSpace(fmt.Sprintf("%.*g %s%s", max(3, len(fmt.Sprintf("%.0f", value))), value, prefixes[i], unit))
}

// Bytes returns a number of bytes: "1.5 GiB".
func Bytes(n uint64) string {
	value, i := float64(n), 0
	prefixes := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	for ; value >= 1024 && i < len(prefixes)-1; i++ {
		value /= 1024
	}
	return strings.Replace(fmt.Sprintf("%.1f %sB", value, prefixes[i]), ".0 ", " ", 1)
}

// Bars draws values as blocks, of which the highest is that of the largest value. Only 0 has none.
func Bars(values []float64) string {
	blocks := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		i := 0
		if v > 0 {
			i = 1 + int(float64(len(blocks)-2)*v/slices.Max(values))
		}
		b.WriteRune(blocks[i])
	}
	return b.String()
}

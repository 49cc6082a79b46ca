package explain

import (
	"fmt"
	"slices"
	"strings"
)

// some lists at most max words, and the number of the others.
func some(words []string, max int) string {
	slices.Sort(words)
	if len(words) <= max {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:max], ", "), len(words)-max)
}

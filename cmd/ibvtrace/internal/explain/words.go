package explain

import (
	"fmt"
	"slices"
	"strings"
)

// some lists the first few words, and says how many there are more.
func some(words []string, most int) string {
	slices.Sort(words)
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}

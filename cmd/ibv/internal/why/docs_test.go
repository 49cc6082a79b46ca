package why

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/why.md lists all kinds of findings.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/why.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), kindTable()) {
		t.Errorf("docs/why.md lacks this table:\n%s", kindTable())
	}
}

func kindTable() string {
	var s strings.Builder
	s.WriteString("| id | what is wrong | where to look |\n|---|---|---|\n")
	for _, k := range Kinds {
		fmt.Fprintf(&s, "| `%s` | %s | %s |\n", k.ID, k.Title, k.Mend)
	}
	return s.String()
}

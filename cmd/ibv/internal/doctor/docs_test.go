package doctor

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/doctor.md lists all kinds of findings, and all notes.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, notes := range []bool{false, true} {
		if table := kindTable(notes); !strings.Contains(string(b), table) {
			t.Errorf("docs/doctor.md lacks this table:\n%s", table)
		}
	}
}

func kindTable(notes bool) string {
	var s strings.Builder
	s.WriteString("| id | what is wrong | leads to | mended by |\n|---|---|---|---|\n")
	for _, k := range Kinds {
		if k.Note == notes {
			fmt.Fprintf(&s, "| `%s` | %s | %s | %s |\n", k.ID, k.Title, k.LeadsTo, k.Mend)
		}
	}
	return s.String()
}

// Each kind has its own ID.
func TestKinds(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range Kinds {
		if seen[k.ID] || k.ID == "" || k.Title == "" || k.LeadsTo == "" || k.Mend == "" {
			t.Errorf("%+v", k)
		}
		seen[k.ID] = true
	}
}

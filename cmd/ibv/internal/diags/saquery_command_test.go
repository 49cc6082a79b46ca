package diags

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/sa"
)

// Each number sets the components of its mask, and too large a number sets none.
func TestSaqueryNumbers(t *testing.T) {
	for i, k := range saNumbers {
		var q SAQuery
		set := saNumberOptions(&q)[i].Set
		if err := set("1"); err != nil || q.PathMask != k.path || q.MemberMask != k.member {
			t.Errorf("--%s: masks %#x, %#x, %v", k.long, q.PathMask, q.MemberMask, err)
		}
		if path, member := q.Path != (sa.PathRecord{}), q.Member != (sa.MCMemberRecord{}); path != (k.path != 0) || member != (k.member != 0) {
			t.Errorf("--%s changes a path: %t, a member: %t", k.long, path, member)
		}
		q = SAQuery{}
		if err := set("0x10000000000000000"); err == nil || q.PathMask|q.MemberMask != 0 {
			t.Errorf("--%s is too large: %+v, %v", k.long, q, err)
		}
	}
}

// Queries that saquery or this program doesn't support are refused before a port is opened.
func TestSaqueryRefused(t *testing.T) {
	for line, want := range map[string]string{
		"-S":                      "there is no option -S",
		"SMIR":                    "SMInfoRecord is not one of the records",
		"-L":                      "-L needs a name",
		"-g 1":                    `"1" is one argument too many`,
		"NR 1 2":                  `"2" is one argument too many`,
		"--src-to-dst 4":          `"4" isn't a source and a destination`,
		"--sgid-to-dgid fe80::1":  `"fe80::1" isn't a source`,
		"-p --sgid 10.0.0.1":      `"10.0.0.1" is no GID`,
		"-p -n 128":               `"128" is not a number of up to 7 bits`,
		"--sgid-to-dgid fe80::1-": `"" is no GID`,
	} {
		c := Saquery()
		operands, err := c.Parse(strings.Fields(line))
		if err == nil {
			err = c.Run(operands)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
		if status := Saquery().Main("ibv saquery", strings.Fields(line)); status != cli.Wrong {
			t.Errorf("%s: status %d", line, status)
		}
	}
}

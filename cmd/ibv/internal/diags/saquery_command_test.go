package diags

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/ibv/internal/cli"
	"github.com/goverbs/goverbs/ib"
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
		"-S":                      "-S is not supported",
		"SWIR":                    "SwitchInfoRecord is not one of the records",
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

// TestEveryOption: each program has the options of infiniband-diags' program, or refuses them with a reason.
func TestEveryOption(t *testing.T) {
	for _, p := range []struct {
		command func() *cli.Command
		options string // "=" ends the name of one with a value
	}{
		{Iblinkinfo, "node-name-map= switch=S port-guid=G Direct=D all a hops=n down d line l additional p load-cache= diff= diffcheck= filterdownports= " +
			"outstanding_smps=o switches-only cas-only sm_port=s"},
		{Ibtracert, "force f no_info n mlid=m node-name-map= ports-file="},
		{Smpquery, "combined c node-name-map= extended x"},
		{Perfquery, "extended x xmtsl X rcvsl S xmtdisc D rcverr E extended_speeds T oprcvcounters flowctlcounters vloppackets vlopdata vlxmitflowctlerrors " +
			"vlxmitcounters swportvlcong rcvcc slrcvfecn slrcvbecn xmitcc vlxmittimecc smplctl c all_ports a loop_ports l reset_after_read r Reset_only R"},
		{Ibnetdiscover, "full f show s list l grouping g Hca_list H Switch_list S Router_list R node-name-map= cache= load-cache= diff= diffcheck= " +
			"ports p max_hops m outstanding_smps=o"},
		{Saquery, "p N L l G O U s g m x c S I list D src-to-dst= sgid-to-dgid= node-name-map= smkey= slid= dlid= mlid= sgid= dgid= gid= mgid= reversible=r " +
			"numb_path=n pkey= qos_class=Q sl= mtu=M rate=R pkt_lifetime= qkey=q tclass=T flow_label=F hop_limit=H scope= join_state=J proxy_join=X service_id="},
	} {
		for word := range strings.FieldsSeq(p.options + " Ca=C Port=P timeout=t config=z pkey-idx=Y errors e verbose v version V") {
			name, letter, takes := strings.Cut(word, "=")
			words := []string{"--" + name}
			if len(name) == 1 {
				words[0] = "-" + name
			}
			if takes {
				words = append(words, "1")
			}
			for _, line := range [][]string{words, {"-" + letter, "1"}} {
				if line[0] == "-" {
					continue
				}
				_, err := p.command().Parse(line)
				var answer cli.Answer
				if err != nil && !errors.As(err, &answer) && strings.Contains(err.Error(), "option") {
					t.Errorf("%s %q: %v", p.command().Name, line, err)
				}
			}
		}
	}
}

// TestNamesOfRecords: what saquery prints has the names of the file, and else the nodes' own.
func TestNamesOfRecords(t *testing.T) {
	q := &saQuery{names: names{7: "by the file"}}
	for guid, want := range map[uint64]string{7: "by the file", 8: "its own"} {
		if got := q.name(&sa.NodeRecord{NodeGUID: ib.GUIDOf(guid), Description: "its own"}); got != want {
			t.Errorf("node %d is %q", guid, got)
		}
	}
}

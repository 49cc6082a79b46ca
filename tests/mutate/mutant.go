//go:build linux

package main

import (
	"math/rand/v2"
	"strings"
)

// A mutant is an edit and its outcome: a line of the results.
type mutant struct {
	File     string
	Line     int
	Column   int
	Function string `json:",omitempty"`
	Operator string
	Before   string
	After    string
	Outcome  outcome `json:",omitempty"`
	By       string  `json:",omitempty"` // the test that failed, or the reason for its equivalence
	Seconds  float64 `json:",omitempty"`

	pkg    *pkg
	edit   edit
	number int   // in a shared build; 0: the mutant has its own build
	build  build // for guests
}

type outcome string

const (
	killed     outcome = "killed"
	hung       outcome = "hung" // killed too: the tests did not end
	survived   outcome = "survived"
	equivalent outcome = "equivalent" // listed as equivalent, and not run
	broken     outcome = "broken"     // does not compile
)

func (c *code) mutant(p *pkg, e edit) mutant {
	m := mutant{File: e.file, Function: e.function, Operator: e.operator, pkg: p, edit: e}
	m.Line, m.Column = c.position(e)
	m.Before, m.After = c.lines(e)
	return m
}

// key identifies a mutant independently of changes to other lines of its file.
func (m mutant) key() string {
	return strings.Join([]string{m.File, m.Function, m.Before, m.After}, "\t")
}

// sample selects n mutants at random, at most one in a line of the source. The first of them
// are the same for each n.
func (c *code) sample(seed uint64, n int) []mutant {
	type line struct {
		p     *pkg
		edits []edit
	}
	var lines []line
	for _, p := range c.packages {
		at := make(map[string]map[int]int) // index in lines, by file and line
		for _, e := range p.edits {
			number, _ := c.position(e)
			if at[e.file] == nil {
				at[e.file] = make(map[int]int)
			}
			i, ok := at[e.file][number]
			if !ok {
				i = len(lines)
				at[e.file][number] = i
				lines = append(lines, line{p: p})
			}
			lines[i].edits = append(lines[i].edits, e)
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	var picked []mutant
	for _, i := range r.Perm(len(lines)) {
		if len(picked) == n {
			break
		}
		l := lines[i]
		for _, j := range r.Perm(len(l.edits)) {
			if e := l.edits[j]; c.compiles(l.p, e) {
				picked = append(picked, c.mutant(l.p, e))
				break
			}
		}
	}
	return picked
}

// locate returns the mutants that match records of earlier runs, and the records whose code
// no longer exists.
func (c *code) locate(records []mutant) (found, gone []mutant) {
	byKey := make(map[string][]mutant)
	for _, p := range c.packages {
		for _, e := range p.edits {
			m := c.mutant(p, e)
			byKey[m.key()] = append(byKey[m.key()], m)
		}
	}
	for _, r := range records {
		same := byKey[r.key()]
		if len(same) == 0 {
			gone = append(gone, r)
			continue
		}
		best := same[0]
		for _, m := range same {
			if m.Line == r.Line {
				best = m
			}
		}
		found = append(found, best)
	}
	return found, gone
}

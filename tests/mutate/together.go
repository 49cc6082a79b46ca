//go:build linux

package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
)

// Most mutants are compiled together, because compiling takes most of the time. Each mutant
// has its own copy of its function, and a variable of the environment selects a mutant.
//
//	func f() {
//		if mutantNumber == 7 {
//			the body with mutant 7
//			return
//		}
//		the body
//	}
//
// So a program that a test starts without the environment runs without a mutant.

// variable is the variable of the environment: the mutant's number, or unset or 0 for no
// mutant.
const variable = "MUTANT"

const selector = `package %s

import (
	"os"
	"strconv"
)

var mutantNumber, _ = strconv.Atoi(os.Getenv("` + variable + `"))
`

// together numbers the mutants that can share a build, and returns the files that change with
// them. Mutants outside of functions, or in functions with labels, can't.
func (c *code) together(mutants []mutant) map[string][]byte {
	type function struct {
		pkg  *pkg
		edit edit // one of those in it
		head []byte
	}
	functions := make(map[string]map[int]*function) // by file, and where the body starts
	for i := range mutants {
		m := &mutants[i]
		e := m.edit
		if e.body == (span{}) {
			continue
		}
		copied := c.copyOf(e, i+1)
		source := c.sources[e.file]
		trial := slices.Concat(source[:e.body.start], copied, source[e.body.start:])
		trial = append(trial, "\nvar mutantNumber int\n"...)
		if !c.checks(m.pkg, e.file, trial) {
			continue
		}
		m.number = i + 1
		if functions[e.file] == nil {
			functions[e.file] = make(map[int]*function)
		}
		f := functions[e.file][e.body.start]
		if f == nil {
			f = &function{pkg: m.pkg, edit: e}
			functions[e.file][e.body.start] = f
		}
		f.head = append(f.head, copied...)
	}
	files := make(map[string][]byte)
	for name, of := range functions {
		starts := make([]int, 0, len(of))
		for start := range of {
			starts = append(starts, start)
		}
		slices.Sort(starts)
		var text bytes.Buffer
		last := 0
		for _, start := range starts {
			text.Write(c.sources[name][last:start])
			text.Write(of[start].head)
			last = start
		}
		text.Write(c.sources[name][last:])
		files[name] = text.Bytes()
		p := of[starts[0]].pkg
		files[filepath.Join(filepath.Dir(name), "mutant_number.go")] = fmt.Appendf(nil, selector, p.files[0].Name.Name)
	}
	return files
}

// copyOf returns the function's body with the edit, for its start.
func (c *code) copyOf(e edit, number int) []byte {
	source := c.sources[e.file]
	var b bytes.Buffer
	fmt.Fprintf(&b, "\nif mutantNumber == %d {", number)
	b.Write(source[e.body.start:e.start])
	b.WriteString(e.text)
	b.Write(source[e.end:e.body.end])
	if !e.results {
		b.WriteString("\nreturn")
	}
	b.WriteString("\n}\n")
	return b.Bytes()
}

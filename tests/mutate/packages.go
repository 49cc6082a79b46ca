//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A code is the source of some packages, with its types.
type code struct {
	fset     *token.FileSet
	importer types.Importer
	packages []*pkg
	sources  map[string][]byte // by the file's name, relative to the module
}

// A pkg is a package to place mutants in.
type pkg struct {
	path  string
	names []string // of its files, as in code.sources
	files []*ast.File
	edits []edit
}

// load reads the packages below the current directory that the patterns name, as they
// are compiled for this system: no test files, and no files of other systems.
func load(patterns ...string) (*code, error) {
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export,DepOnly"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	c := &code{fset: token.NewFileSet(), sources: make(map[string][]byte)}
	exports := make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly {
			continue
		}
		loaded := &pkg{path: p.ImportPath}
		for _, name := range p.GoFiles {
			name, err := filepath.Rel(here, filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			if err := c.read(loaded, name); err != nil {
				return nil, err
			}
		}
		c.packages = append(c.packages, loaded)
	}
	slices.SortFunc(c.packages, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, p := range c.packages {
		info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
		if err := c.check(p, p.files, info); err != nil {
			return nil, fmt.Errorf("%s: %w", p.path, err)
		}
		for i, name := range p.names {
			if !ast.IsGenerated(p.files[i]) {
				p.edits = append(p.edits, find(c.fset, info, name, c.sources[name], p.files[i])...)
			}
		}
	}
	return c, nil
}

func (c *code) read(p *pkg, name string) error {
	source, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(c.fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	c.sources[name] = source
	p.names = append(p.names, name)
	p.files = append(p.files, file)
	return nil
}

func (c *code) check(p *pkg, files []*ast.File, info *types.Info) error {
	var errs []error
	config := types.Config{
		Importer: c.importer,
		Sizes:    types.SizesFor("gc", runtime.GOARCH),
		Error:    func(err error) { errs = append(errs, err) },
	}
	config.Check(p.path, c.fset, files, info)
	return errors.Join(errs...)
}

// apply returns the file with the edit.
func (c *code) apply(e edit) []byte {
	source := c.sources[e.file]
	return slices.Concat(source[:e.start], []byte(e.text), source[e.end:])
}

// compiles reports whether the package compiles with the edit.
func (c *code) compiles(p *pkg, e edit) bool { return c.checks(p, e.file, c.apply(e)) }

// checks reports whether the package compiles with source in place of one of its files.
func (c *code) checks(p *pkg, name string, source []byte) bool {
	file, err := parser.ParseFile(c.fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	files := slices.Clone(p.files)
	files[slices.Index(p.names, name)] = file
	return c.check(p, files, nil) == nil
}

// lines returns the lines that the edit touches, before and after it, without the
// spaces around.
func (c *code) lines(e edit) (before, after string) {
	source := c.sources[e.file]
	from := bytes.LastIndexByte(source[:e.start], '\n') + 1
	to := len(source)
	if i := bytes.IndexByte(source[e.end:], '\n'); i >= 0 {
		to = e.end + i
	}
	text := func(piece []byte) string { return strings.Join(strings.Fields(string(piece)), " ") }
	return text(source[from:to]), text(slices.Concat(source[from:e.start], []byte(e.text), source[e.end:to]))
}

// position returns the line and the column at which the edit starts.
func (c *code) position(e edit) (line, column int) {
	before := c.sources[e.file][:e.start]
	return bytes.Count(before, []byte("\n")) + 1, e.start - bytes.LastIndexByte(before, '\n')
}

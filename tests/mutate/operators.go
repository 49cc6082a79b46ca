//go:build linux

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// An edit replaces a piece of one file. Operators find edits.
type edit struct {
	file       string // relative to the module
	start, end int
	text       string
	operator   string
	function   string // around it, with its receiver: "(*queue).push"
	body       span   // of that function, without the braces
	results    bool   // the function has results
}

// A span is a piece of a file.
type span struct{ start, end int }

// A finder collects the edits of one file.
type finder struct {
	fset   *token.FileSet
	info   *types.Info
	source []byte
	around edit // the edit's fields for the function around it
	edits  []edit
}

// find returns all edits that the operators find in a file. Some of them don't compile.
func find(fset *token.FileSet, info *types.Info, name string, source []byte, file *ast.File) []edit {
	f := finder{fset: fset, info: info, source: source}
	for _, d := range file.Decls {
		f.around = edit{file: name}
		if fn, ok := d.(*ast.FuncDecl); ok {
			if fn.Recv != nil && (fn.Name.Name == "String" || fn.Name.Name == "GoString") {
				continue
			}
			f.around.function = fn.Name.Name
			if fn.Recv != nil {
				f.around.function = "(" + f.text(fn.Recv.List[0].Type) + ")." + fn.Name.Name
			}
			f.around.results = fn.Type.Results != nil
			if fn.Body != nil {
				f.around.body = span{f.offset(fn.Body.Lbrace) + 1, f.offset(fn.Body.Rbrace)}
			}
		}
		ast.Inspect(d, func(n ast.Node) bool {
			f.node(n)
			return true
		})
	}
	return f.edits
}

func (f *finder) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		f.condition(n.Cond)
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.add("drop !", n, f.text(n.X))
		}
	case *ast.BasicLit:
		f.constant(n)
	case *ast.IncDecStmt:
		f.token("+ and -", n.TokPos, n.Tok, map[token.Token]token.Token{token.INC: token.DEC, token.DEC: token.INC}[n.Tok])
	case *ast.AssignStmt:
		if len(n.Lhs) == 1 && f.isNumber(n.Lhs[0]) {
			f.token("arithmetic", n.TokPos, n.Tok, arithmetic[n.Tok])
		}
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.CallExpr:
		f.arguments(n)
	case *ast.CompositeLit:
		f.fields(n)
	case *ast.ReturnStmt:
		f.result(n)
	}
}

// condition negates conditions other than comparisons and negations, which binary and `drop
// !` change.
func (f *finder) condition(cond ast.Expr) {
	switch c := ast.Unparen(cond).(type) {
	case nil:
		return
	case *ast.BinaryExpr:
		if comparisons[c.Op] != nil {
			return
		}
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			return
		}
	}
	f.add("negate condition", cond, "!("+f.text(cond)+")")
}

var comparisons = map[token.Token][]token.Token{
	token.EQL: {token.NEQ},
	token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ},
	token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ},
	token.GEQ: {token.GTR, token.LSS},
}

var arithmetic = map[token.Token]token.Token{
	token.ADD: token.SUB, token.SUB: token.ADD,
	token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.QUO,
	token.AND: token.OR, token.OR: token.AND, token.XOR: token.AND, token.AND_NOT: token.AND,
	token.SHL: token.SHR, token.SHR: token.SHL,

	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN, token.REM_ASSIGN: token.QUO_ASSIGN,
	token.AND_ASSIGN: token.OR_ASSIGN, token.OR_ASSIGN: token.AND_ASSIGN, token.XOR_ASSIGN: token.AND_ASSIGN, token.AND_NOT_ASSIGN: token.OR_ASSIGN,
	token.SHL_ASSIGN: token.SHR_ASSIGN, token.SHR_ASSIGN: token.SHL_ASSIGN,
}

func (f *finder) binary(n *ast.BinaryExpr) {
	for _, op := range comparisons[n.Op] {
		f.token("comparison", n.OpPos, n.Op, op)
	}
	switch n.Op {
	case token.LAND:
		f.token("&& and ||", n.OpPos, n.Op, token.LOR)
	case token.LOR:
		f.token("&& and ||", n.OpPos, n.Op, token.LAND)
	default:
		if f.isNumber(n.X) {
			f.token("arithmetic", n.OpPos, n.Op, arithmetic[n.Op])
		}
	}
}

// constant adds one to a number, and clears a bit of a number in hexadecimal, which is
// usually a mask.
func (f *finder) constant(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	v, err := strconv.ParseUint(n.Value, 0, 64)
	if err != nil {
		return
	}
	text := fmt.Sprint(v + 1)
	if strings.HasPrefix(n.Value, "0x") {
		text = fmt.Sprintf("%#x", v>>1)
		if bits.OnesCount64(v) == 1 {
			text = fmt.Sprintf("%#x", v<<1)
		} else if v == 0 {
			text = "0x1"
		}
	}
	f.add("constant", n, text)
}

// statements removes statements that have an effect and no value: calls, assignments, jumps.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && f.text(call.Fun) == "panic" {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || s.Tok == token.ASSIGN && f.text(s.Lhs[0]) == "_" {
				continue
			}
		case *ast.IncDecStmt, *ast.BranchStmt, *ast.ReturnStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
		default:
			continue
		}
		f.add("remove statement", s, "")
	}
}

// arguments swaps two neighbours of the same type in a call. It skips the texts of errors,
// and functions whose arguments may be in any order.
func (f *finder) arguments(n *ast.CallExpr) {
	if tv := f.info.Types[n.Fun]; tv.IsType() {
		return
	}
	if name := f.text(n.Fun); slices.Contains([]string{"append", "min", "max", "fmt.Errorf"}, name) {
		return
	}
	f.neighbours("swap arguments", n.Args, func(e ast.Expr) ast.Expr { return e })
}

// fields swaps the values of two neighbours of the same type in a struct literal.
func (f *finder) fields(n *ast.CompositeLit) {
	t := f.info.TypeOf(n)
	if t == nil {
		return
	}
	if _, ok := t.Underlying().(*types.Struct); !ok {
		return
	}
	f.neighbours("swap fields", n.Elts, func(e ast.Expr) ast.Expr {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			return kv.Value
		}
		return e
	})
}

func (f *finder) neighbours(operator string, list []ast.Expr, value func(ast.Expr) ast.Expr) {
	for i := 1; i < len(list); i++ {
		a, b := value(list[i-1]), value(list[i])
		ta, tb := f.info.TypeOf(a), f.info.TypeOf(b)
		if ta == nil || tb == nil || !types.Identical(ta, tb) || f.text(a) == f.text(b) {
			continue
		}
		between := string(f.source[f.offset(a.End()):f.offset(b.Pos())])
		f.replace(operator, a.Pos(), b.End(), f.text(b)+between+f.text(a))
	}
}

// result returns nil for an error.
func (f *finder) result(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	t := f.info.TypeOf(last)
	if t == nil || f.text(last) == "nil" {
		return
	}
	if _, tuple := t.(*types.Tuple); tuple || !types.Implements(t, errorType) {
		return
	}
	f.add("nil for error", last, "nil")
}

var errorType = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

func (f *finder) isNumber(e ast.Expr) bool {
	t := f.info.TypeOf(e)
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

func (f *finder) token(operator string, pos token.Pos, from, to token.Token) {
	if to != token.ILLEGAL {
		f.replace(operator, pos, pos+token.Pos(len(from.String())), to.String())
	}
}

func (f *finder) add(operator string, n ast.Node, text string) {
	f.replace(operator, n.Pos(), n.End(), text)
}

func (f *finder) replace(operator string, start, end token.Pos, text string) {
	e := f.around
	e.operator, e.start, e.end, e.text = operator, f.offset(start), f.offset(end), text
	f.edits = append(f.edits, e)
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

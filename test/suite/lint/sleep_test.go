package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSleep_NoTestWaitsOnTimeAfter holds tests and their helpers to what the linter holds time.Sleep to: a statement
// that does nothing but wait for a time is a sleep by another name. In a bubble of synctest time is not waited for.
func TestSleep_NoTestWaitsOnTimeAfter(t *testing.T) {
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, at := range sleeps(t, path, source) {
			t.Errorf("%s: <-time.After is a sleep here; wait for the event, or look for it with a ticker", at)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, at := range rounds(t, path, source) {
			t.Errorf("%s: time.After starts again in each round; wait for the event, look for it with a ticker, or make the limit before the loop", at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sleeps finds the statements that only wait for time.After, but for those in functions that are given to synctest.Test.
func sleeps(t *testing.T, path string, source []byte) (found []token.Position) {
	t.Helper()
	files, file := parsed(t, path, source)
	inCase := map[ast.Stmt]bool{} // what a case of a select waits for
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return !isCall(n, "synctest", "Test")
		case *ast.SelectStmt:
			if len(n.Body.List) > 1 {
				for _, c := range n.Body.List {
					inCase[c.(*ast.CommClause).Comm] = true
				}
			}
		case *ast.ExprStmt:
			if waitsForTime(n) && !inCase[n] {
				found = append(found, files.Position(n.Pos()))
			}
		}
		return true
	})
	return found
}

// rounds finds the cases of a select that wait for time.After in the body of a loop.
func rounds(t *testing.T, path string, source []byte) (found []token.Position) {
	t.Helper()
	files, file := parsed(t, path, source)
	looped := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt:
			looped[n.Body] = true
		case *ast.RangeStmt:
			looped[n.Body] = true
		case *ast.BlockStmt:
			if looped[n] {
				found = append(found, timed(files, n)...)
			}
		}
		return true
	})
	return found
}

// timed finds such cases in a body, but in no function and no loop of their own.
func timed(files *token.FileSet, body *ast.BlockStmt) (found []token.Position) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.ForStmt, *ast.RangeStmt:
			return false
		case *ast.CommClause:
			if n.Comm != nil && waitsForTime(n.Comm) {
				found = append(found, files.Position(n.Pos()))
			}
		}
		return true
	})
	return found
}

func parsed(t *testing.T, path string, source []byte) (*token.FileSet, *ast.File) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return files, file
}

func waitsForTime(s ast.Stmt) bool {
	e, is := s.(*ast.ExprStmt)
	if !is {
		return false
	}
	receive, is := e.X.(*ast.UnaryExpr)
	if !is || receive.Op != token.ARROW {
		return false
	}
	call, is := receive.X.(*ast.CallExpr)
	return is && isCall(call, "time", "After")
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	s, is := call.Fun.(*ast.SelectorExpr)
	if !is || s.Sel.Name != name {
		return false
	}
	x, is := s.X.(*ast.Ident)
	return is && x.Name == pkg
}

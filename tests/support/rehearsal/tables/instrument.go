// Changes the test files in folders so that tests print their tables and run no case.
//
//	go run instrument.go FOLDER… PRINTER
//
// PRINTER is the file with `printTable`. The folders are packages in a temporary copy of a Go module.
package main

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The variable that holds a table, and the variables that hold what all cases of a test share.
const table = "cases"

var shared = map[string]bool{"cfg": true, "flavors": true, "resourceFlavors": true, "clusterQueues": true, "queues": true}

func main() {
	last := len(os.Args) - 1
	printer, err := os.ReadFile(os.Args[last])
	check(err)
	for _, folder := range os.Args[1:last] {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		check(err)
		var name string
		for _, file := range files {
			name = rewrite(file)
		}
		text := strings.Replace(string(printer), "package tables", "package "+name, 1)
		check(os.WriteFile(filepath.Join(folder, "print_table_test.go"), []byte(text), 0o600))
	}
}

// Returns the name of the file's package.
func rewrite(file string) string {
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, file, nil, parser.SkipObjectResolution)
	check(err)
	if instrument(parsed) {
		changed, err := os.Create(file)
		check(err)
		check(format.Node(changed, positions, parsed))
		check(changed.Close())
	}
	return parsed.Name.Name
}

// Before each loop over a table, insert `if printTable(…) { return }`. Returns whether there is one.
func instrument(file *ast.File) bool {
	found := false
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		known := parameters(function)
		var body []ast.Stmt
		for _, statement := range function.Body.List {
			known = append(known, assigned(statement)...)
			if loop, ok := statement.(*ast.RangeStmt); ok && isTable(loop.X) && slices.Contains(known, "t") {
				body = append(body, printing(known))
				found = true
			}
			body = append(body, statement)
		}
		function.Body.List = body
	}
	return found
}

func parameters(function *ast.FuncDecl) (names []string) {
	for _, field := range function.Type.Params.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

func assigned(statement ast.Stmt) (names []string) {
	if assignment, ok := statement.(*ast.AssignStmt); ok && assignment.Tok == token.DEFINE {
		for _, left := range assignment.Lhs {
			if name, ok := left.(*ast.Ident); ok {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

func isTable(expression ast.Expr) bool {
	name, ok := expression.(*ast.Ident)
	return ok && name.Name == table
}

// `if printTable(t, cases, map[string]any{"flavors": flavors}) { return }`
func printing(known []string) ast.Stmt {
	var entries []string
	for _, name := range known {
		if shared[name] {
			entries = append(entries, fmt.Sprintf("%q: %s", name, name))
		}
	}
	call, err := parser.ParseExpr(fmt.Sprintf("printTable(t, %s, map[string]any{%s})", table, strings.Join(entries, ", ")))
	check(err)
	return &ast.IfStmt{Cond: call, Body: &ast.BlockStmt{List: []ast.Stmt{&ast.ReturnStmt{}}}}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

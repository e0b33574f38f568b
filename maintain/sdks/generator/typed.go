package main

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

// typed is a program in Go in which the arguments that are no inputs have the types of the SDK: optional ones are
// pointers, maps and lists have types of their own. Pulumi's generator of programs does not write them:
// https://github.com/pulumi/pulumi/blob/v3.250.0/pkg/codegen/go/gen_program_expressions.go (TODO: propagate optionals)
func typed(program []byte, spec schema.PackageSpec) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "main.go", program, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(node ast.Node) bool {
		literal, ok := node.(*ast.CompositeLit)
		if !ok {
			return true
		}
		selector, ok := literal.Type.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		resource, ok := spec.Resources[spec.Name+":index:"+strings.TrimSuffix(selector.Sel.Name, "Args")]
		if ok {
			setFields(literal, resource.InputProperties, resource.RequiredInputs, spec)
		}
		return !ok
	})
	var text bytes.Buffer
	err = format.Node(&text, files, file)
	return text.Bytes(), err
}

// setFields gives the fields of a struct their types.
func setFields(
	literal *ast.CompositeLit, properties map[string]schema.PropertySpec, required []string, spec schema.PackageSpec,
) {
	for _, element := range literal.Elts {
		field := element.(*ast.KeyValueExpr)
		for name, property := range properties {
			if property.Plain && field.Key.(*ast.Ident).Name == strings.ToUpper(name[:1])+name[1:] {
				field.Value = valueOf(field.Value, property.TypeSpec, spec)
				if !slices.Contains(required, name) {
					field.Value = pointer(field.Value, property.TypeSpec)
				}
			}
		}
	}
}

// valueOf is a value with the type of a property.
func valueOf(value ast.Expr, of schema.TypeSpec, spec schema.PackageSpec) ast.Expr {
	literal, ok := value.(*ast.CompositeLit)
	if address, is := value.(*ast.UnaryExpr); is {
		literal, ok = address.X.(*ast.CompositeLit)
	}
	if !ok {
		return value
	}
	switch {
	case of.Items != nil && of.Items.Plain:
		literal.Type = &ast.ArrayType{Elt: typeOf(*of.Items)}
		for i, element := range literal.Elts {
			literal.Elts[i] = valueOf(element, *of.Items, spec)
		}
	case of.AdditionalProperties != nil && of.AdditionalProperties.Plain:
		literal.Type = &ast.MapType{Key: ast.NewIdent("string"), Value: typeOf(*of.AdditionalProperties)}
		for _, element := range literal.Elts {
			entry := element.(*ast.KeyValueExpr)
			entry.Value = valueOf(entry.Value, *of.AdditionalProperties, spec)
		}
	case of.Ref != "":
		literal.Type = typeOf(of)
		object := spec.Types[strings.TrimPrefix(of.Ref, "#/types/")]
		setFields(literal, object.Properties, object.Required, spec)
	}
	return literal
}

// typeOf is the type of an item of a list or map.
func typeOf(of schema.TypeSpec) ast.Expr {
	switch {
	case of.Ref != "":
		name := of.Ref[strings.LastIndex(of.Ref, ":")+1:] + "Args"
		return &ast.SelectorExpr{X: ast.NewIdent("gkeai"), Sel: ast.NewIdent(name)}
	case of.Items != nil:
		return &ast.ArrayType{Elt: typeOf(*of.Items)}
	case of.AdditionalProperties != nil:
		return &ast.MapType{Key: ast.NewIdent("string"), Value: typeOf(*of.AdditionalProperties)}
	}
	names := map[string]string{"boolean": "bool", "integer": "int", "number": "float64", "string": "string"}
	return ast.NewIdent(names[of.Type])
}

// pointer is a pointer to a value, unless its type has none.
func pointer(value ast.Expr, of schema.TypeSpec) ast.Expr {
	switch {
	case of.Items != nil || of.AdditionalProperties != nil:
		return value
	case of.Type == "number":
		value = &ast.CallExpr{Fun: ast.NewIdent("float64"), Args: []ast.Expr{value}}
	case of.Ref != "":
		if literal, ok := value.(*ast.CompositeLit); ok {
			return &ast.UnaryExpr{Op: token.AND, X: literal}
		}
	}
	return &ast.CallExpr{Fun: ast.NewIdent("new"), Args: []ast.Expr{value}}
}

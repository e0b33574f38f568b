// Writes SDKs of a package, and programs that use it, with Pulumi's own generators.
//
//	generator FOLDER
//
// FOLDER/schemas has NAME.json of every package that the programs use, FOLDER/programs the programs in Pulumi's
// intermediate language. The SDKs are written to FOLDER/sdk/LANGUAGE, the programs to FOLDER/examples/LANGUAGE/NAME.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/blang/semver"
	"github.com/hashicorp/hcl/v2"
	gogen "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/hcl2/syntax"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/pcl"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

const (
	ours = "gke-ai"
	tool = "gke-ai" // generated files name it in their first line
)

// languageFolder is the folder of the SDK in each language. That of Go is the path by which it is imported.
var languageFolder = map[string]string{"go": "go/gkeai", "nodejs": "nodejs", "python": "python"}

// packages are the schemas that programs use, by name.
type packages map[string]*schema.Package

func (p packages) LoadPackageV2(_ context.Context, wanted *schema.PackageDescriptor) (*schema.Package, error) {
	if found, ok := p[wanted.Name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("FOLDER/schemas has no %s.json", wanted.Name)
}

func (p packages) LoadPackage(name string, version *semver.Version) (*schema.Package, error) {
	return p.LoadPackageV2(context.Background(), &schema.PackageDescriptor{Name: name, Version: version})
}

func (p packages) LoadPackageReferenceV2(
	ctx context.Context, wanted *schema.PackageDescriptor,
) (schema.PackageReference, error) {
	found, err := p.LoadPackageV2(ctx, wanted)
	if err != nil {
		return nil, err
	}
	return found.Reference(), nil
}

func (p packages) LoadPackageReference(name string, version *semver.Version) (schema.PackageReference, error) {
	return p.LoadPackageReferenceV2(context.Background(), &schema.PackageDescriptor{Name: name, Version: version})
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(folder string) error {
	specs := map[string]schema.PackageSpec{}
	files, err := filepath.Glob(filepath.Join(folder, "schemas", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var spec schema.PackageSpec
		if err := json.Unmarshal(text, &spec); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		specs[spec.Name] = spec
	}
	if err := writeSDKs(specs[ours], filepath.Join(folder, "sdk")); err != nil {
		return err
	}
	// With a package of this name, the generator of programs in Go loses the package of types.
	var options map[string]any
	if err := json.Unmarshal(specs[ours].Language["go"], &options); err != nil {
		return err
	}
	delete(options, "rootPackageName")
	if specs[ours].Language["go"], err = json.Marshal(options); err != nil {
		return err
	}
	programs, err := filepath.Glob(filepath.Join(folder, "programs", "*.pp"))
	if err != nil {
		return err
	}
	for _, program := range programs {
		if err := writeProgram(program, specs, filepath.Join(folder, "examples")); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
	}
	return nil
}

func writeSDKs(spec schema.PackageSpec, folder string) error {
	none := packages{}
	languages := map[string]func(*schema.Package) (map[string][]byte, error){
		"nodejs": func(of *schema.Package) (map[string][]byte, error) {
			return nodejs.GeneratePackage(tool, of, nil, nil, true, none)
		},
		"go": func(of *schema.Package) (map[string][]byte, error) { return gogen.GeneratePackage(tool, of, nil) },
		"python": func(of *schema.Package) (map[string][]byte, error) {
			return python.GeneratePackage(tool, of, nil, none)
		},
	}
	for language, generate := range languages {
		of, err := bound(spec)
		if err != nil {
			return err
		}
		files, err := generate(of)
		if err != nil {
			return err
		}
		if err := write(files, filepath.Join(folder, languageFolder[language])); err != nil {
			return err
		}
	}
	return nil
}

// bound is the package of a schema. The generators change it, so each needs its own.
func bound(spec schema.PackageSpec) (*schema.Package, error) {
	found, problems, err := schema.BindSpec(spec, packages{}, schema.ValidationOptions{})
	return found, failure(err, problems)
}

// writeProgram writes a program in each language.
func writeProgram(file string, specs map[string]schema.PackageSpec, folder string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(file), ".pp")
	languages := map[string]func(*pcl.Program) (map[string][]byte, hcl.Diagnostics, error){
		"nodejs": nodejs.GenerateProgram,
		"go":     gogen.GenerateProgram,
		"python": python.GenerateProgram,
	}
	for language, generate := range languages {
		known := packages{}
		for of, spec := range specs {
			if known[of], err = bound(spec); err != nil {
				return err
			}
		}
		parser := syntax.NewParser()
		if err := failure(parser.ParseFile(strings.NewReader(string(text)), file), parser.Diagnostics); err != nil {
			return err
		}
		program, problems, err := pcl.BindProgram(parser.Files, known)
		if err := failure(err, problems); err != nil {
			return err
		}
		files, problems, err := generate(program)
		if err := failure(err, problems); err != nil {
			return err
		}
		if language == "go" {
			if files["main.go"], err = typed(files["main.go"], specs[ours]); err != nil {
				return err
			}
		}
		if err := write(files, filepath.Join(folder, language, name)); err != nil {
			return err
		}
	}
	return nil
}

// failure is an error if there is one, or a problem that is no warning.
func failure(err error, problems hcl.Diagnostics) error {
	if problems.HasErrors() {
		return errors.Join(err, problems)
	}
	return err
}

func write(files map[string][]byte, folder string) error {
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

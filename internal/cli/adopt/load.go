package adopt

import (
	"context"
	"fmt"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/tools/go/packages"
)

// module is the operator's Go module, type-checked.
type module struct {
	// path is the module's path. dir is the requested folder, to which paths in the report are relative. root is the
	// folder of go.mod.
	path, dir, root string
	fset            *token.FileSet
	// packages are the packages below dir, without tests.
	packages []*packages.Package
}

// FolderError is returned for a folder without an operator: another one must be chosen.
type FolderError struct{ text string }

func (e *FolderError) Error() string { return e.text }

func wrongFolder(format string, args ...any) error { return &FolderError{fmt.Sprintf(format, args...)} }

// loadMode requests syntax and types of the module, and the types of its dependencies.
const loadMode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
	packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedModule

// load type-checks all packages below a folder. overlay maps absolute paths to new file contents. Nothing is compiled:
// without export data, the types of dependencies come from their declarations.
func load(ctx context.Context, dir string, overlay map[string][]byte) (*module, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(abs); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, wrongFolder("%s is a file: name the operator's folder", dir)
	}
	// The go command reports real paths.
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, err
	}
	root, err := moduleRoot(abs)
	if err != nil {
		return nil, err
	}
	m := &module{dir: abs, root: root, fset: token.NewFileSet()}
	all, err := packages.Load(&packages.Config{
		Context: ctx, Mode: loadMode, Dir: abs, Fset: m.fset, Overlay: overlay,
		BuildFlags: []string{"-export=false"},
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of %s: %w", dir, err)
	}
	for _, p := range all {
		if len(p.Syntax) > 0 {
			m.packages = append(m.packages, p)
			m.path = p.PkgPath
			if p.Module != nil {
				m.path = p.Module.Path
			}
		}
	}
	if len(m.packages) == 0 {
		return nil, wrongFolder("%s has no Go packages: name the folder of the operator's go.mod, or one below it", dir)
	}
	return m, nil
}

// rel returns the path of a file below the module's folder, with slashes.
func (m *module) rel(name string) string {
	if rel, err := filepath.Rel(m.dir, name); err == nil {
		return filepath.ToSlash(rel)
	}
	return name
}

// moduleRoot returns the folder of dir's go.mod.
func moduleRoot(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", noModule(dir)
		}
	}
}

func noModule(dir string) error {
	if below, _ := filepath.Glob(filepath.Join(dir, "*", "go.mod")); len(below) > 0 {
		return wrongFolder("%s is in no Go module: its folder %s has one, name that", dir, filepath.Dir(below[0]))
	}
	return wrongFolder("%s is in no Go module: name the folder of the operator's go.mod. Programs in other languages, "+
		"and operators of Ansible or Helm, get their keys from dispatchers: "+docs+"dispatch.md", dir)
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// rotaName returns the requested name, or the last part of the module's path.
func rotaName(asked, modulePath string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	base := path.Base(modulePath)
	if regexp.MustCompile(`^v[0-9]+$`).MatchString(base) {
		base = path.Base(path.Dir(modulePath))
	}
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(base), "-"), "-")
	if name == "" {
		return "", fmt.Errorf("the module's path %s does not give a valid name: set one with --name", modulePath)
	}
	return name, nil
}

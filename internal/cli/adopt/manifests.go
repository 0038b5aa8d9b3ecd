package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is one Kubernetes object in a file.
type document struct {
	*yaml.Node
	// file is its path.
	file string
	rel  string
}

// skipFolders have no manifests of the operator.
var skipFolders = []string{"vendor", "node_modules", "testdata", "bin", "dist", "hack", "third_party", "docs", "test",
	"tests", "samples", "examples"}

// manifests reads the operator's Deployments and roles.
func (s *source) manifests() error {
	var docs []*document
	err := filepath.WalkDir(s.module.Dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			nested := name != s.module.Dir && exists(filepath.Join(name, "go.mod"))
			if name != s.module.Dir && (strings.HasPrefix(d.Name(), ".") || slices.Contains(skipFolders, d.Name()) || nested) {
				return fs.SkipDir
			}
		case d.Type().IsRegular() && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")):
			docs = append(docs, s.documents(name)...)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("manifests of %s: %w", s.module.Dir, err)
	}
	patches := patchesOf(docs)
	docs = slices.DeleteFunc(docs, func(d *document) bool { return patches[d.file] || d.isPatch() })
	s.bundles(docs)
	own := s.ownDeployments(docs)
	for _, w := range own {
		s.deployment(w)
	}
	s.roles(docs, own)
	if len(own) == 0 {
		s.found(Look, codeNoManifest, place{}, "no Deployment of the operator was found in YAML that can be read")
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// bundleKind is what OLM installs an operator from.
const bundleKind = "ClusterServiceVersion"

// bundles names the Deployments and roles that OLM has in other objects.
func (s *source) bundles(docs []*document) {
	for _, d := range docs {
		install := get(d.Node, "spec", "install", "spec")
		if scalar(d.Node, "kind") == bundleKind && len(items(value(install, "deployments"))) > 0 {
			s.found(Look, codeBundle, place{d.rel, d.Line}, "the %s %s has a Deployment, and was not read", bundleKind,
				scalar(d.Node, "metadata", "name"))
		}
	}
}

// patchesOf returns the files that a kustomization lists as patches of other objects.
func patchesOf(docs []*document) map[string]bool {
	out := map[string]bool{}
	for _, d := range docs {
		if !isKustomization(d.file) {
			continue
		}
		var names []string
		for _, key := range []string{"patches", "patchesJson6902"} {
			for _, p := range items(value(d.Node, key)) {
				names = append(names, scalar(p, "path"))
			}
		}
		for _, name := range append(names, texts(value(d.Node, "patchesStrategicMerge"))...) {
			if name != "" && !strings.Contains(name, "\n") {
				out[filepath.Join(filepath.Dir(d.file), filepath.FromSlash(name))] = true
			}
		}
	}
	return out
}

func isKustomization(file string) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml"}, filepath.Base(file))
}

// isPatch reports whether an object is a part of one by its file's name, and by what it lacks.
func (d *document) isPatch() bool {
	return strings.Contains(filepath.Base(d.file), "patch") && get(d.Node, "spec", "template") != nil &&
		get(d.Node, "spec", "selector") == nil
}

// documents reads the objects of a file, and those in lists. Files that cannot be read, such as templates, are noted.
func (s *source) documents(name string) []*document {
	text, err := os.ReadFile(name)
	if err != nil || len(text) > 4<<20 {
		return nil
	}
	rel := s.module.rel(name)
	interesting := false
	for _, kind := range []string{"kind: Deployment", "kind: StatefulSet", "kind: Role", "kind: ClusterRole",
		"kind: " + bundleKind} {
		interesting = interesting || bytes.Contains(text, []byte(kind))
	}
	if !interesting && !isKustomization(name) {
		return nil
	}
	// A template may happen to be YAML.
	if bytes.Contains(text, []byte("{{")) {
		s.report.Unread = append(s.report.Unread, rel)
		return nil
	}
	var out []*document
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			s.ignoresIn(rel, text)
			return out
		}
		if err != nil {
			s.report.Unread = append(s.report.Unread, rel)
			return nil
		}
		if len(node.Content) == 1 && node.Content[0].Kind == yaml.MappingNode {
			out = append(out, &document{node.Content[0], name, rel})
			if scalar(node.Content[0], "kind") == "List" {
				for _, item := range items(value(node.Content[0], "items")) {
					out = append(out, &document{item, name, rel})
				}
			}
		}
	}
}

// get returns the node at a path of mapping keys, or nil.
func get(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		if n = value(n, key); n == nil {
			return nil
		}
	}
	return n
}

func value(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// scalar returns the text at a path, or "".
func scalar(n *yaml.Node, path ...string) string {
	if n = get(n, path...); n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// items returns the elements of a list.
func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// texts returns the texts of a list.
func texts(n *yaml.Node) []string {
	var out []string
	for _, item := range items(n) {
		out = append(out, item.Value)
	}
	return out
}

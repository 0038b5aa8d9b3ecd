package adopt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlEdits are insertions into a file of YAML, line by line, so that comments stay. They are made in blocks only:
// where a mapping or a list is written in braces or brackets, nothing is changed, and the method returns false.
type yamlEdits struct {
	file  *fileEdit
	lines []int // where each line begins
}

// yaml returns the edits of a file.
func (e *edits) yaml(name string) *yamlEdits {
	f, err := e.file(name)
	if err != nil {
		return &yamlEdits{}
	}
	y := &yamlEdits{file: f, lines: []int{0}}
	for i, b := range f.old {
		if b == '\n' {
			y.lines = append(y.lines, i+1)
		}
	}
	return y
}

// offset returns the byte at which a line begins, counted from 1; that after the last line is the end of the file.
func (y *yamlEdits) offset(line int) int {
	if line-1 < len(y.lines) {
		return y.lines[line-1]
	}
	return len(y.file.old)
}

// replace puts a text in place of a plain scalar.
func (y *yamlEdits) replace(n *yaml.Node, text string) bool {
	if y.file == nil || n.Kind != yaml.ScalarNode || n.Style != 0 {
		return false
	}
	start := y.offset(n.Line) + n.Column - 1
	if !bytes.HasPrefix(y.file.old[start:], []byte(n.Value)) {
		return false
	}
	y.file.add(start, start+len(n.Value), text)
	return true
}

// insert adds lines before a line, indented.
func (y *yamlEdits) insert(line, indent int, lines ...string) {
	var b strings.Builder
	at := y.offset(line)
	if at > 0 && y.file.old[at-1] != '\n' {
		b.WriteByte('\n')
	}
	for _, l := range lines {
		b.WriteString(strings.Repeat(" ", indent) + l + "\n")
	}
	y.file.add(at, at, b.String())
}

// block returns the indentation of a mapping's keys, if it is written as a block.
func (y *yamlEdits) block(n *yaml.Node) (int, bool) {
	if y.file == nil || n == nil || n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle != 0 || len(n.Content) == 0 {
		return 0, false
	}
	return n.Content[0].Column - 1, true
}

// addKey adds a key with its value behind a mapping's first value that is in one line.
func (y *yamlEdits) addKey(n *yaml.Node, lines ...string) bool {
	indent, ok := y.block(n)
	if !ok {
		return false
	}
	for i := 1; i < len(n.Content); i += 2 {
		v := n.Content[i]
		if v.Kind == yaml.ScalarNode && v.Line == n.Content[i-1].Line && !strings.Contains(v.Value, "\n") &&
			v.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && y.oneLine(v) {
			y.insert(v.Line+1, indent, lines...)
			return true
		}
	}
	return false
}

// oneLine reports whether a scalar ends in the line in which it begins.
func (y *yamlEdits) oneLine(n *yaml.Node) bool {
	line := y.file.old[y.offset(n.Line):y.offset(n.Line+1)]
	return bytes.Contains(line, []byte(n.Value))
}

// addBefore adds lines before a key of a mapping that is not its first one, and before the comments above that key.
func (y *yamlEdits) addBefore(n *yaml.Node, key string, lines ...string) bool {
	indent, ok := y.block(n)
	if !ok {
		return false
	}
	for i := 2; i < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Value == key {
			above := 0
			if k.HeadComment != "" {
				above = strings.Count(k.HeadComment, "\n") + 1
			}
			y.insert(k.Line-above, indent, lines...)
			return true
		}
	}
	return false
}

// addEnv adds variables of the downward API to a container.
func (y *yamlEdits) addEnv(container *yaml.Node, names []string) bool {
	var entries []string
	for _, f := range podFields {
		for _, name := range names {
			if name == f.name {
				entries = append(entries, "- name: "+name, "  valueFrom:", "    fieldRef:", "      fieldPath: "+f.field)
			}
		}
	}
	env := value(container, "env")
	if env == nil {
		return y.addKey(container, append([]string{"env:"}, entries...)...)
	}
	if y.file == nil || env.Kind != yaml.SequenceNode || env.Style&yaml.FlowStyle != 0 || len(env.Content) == 0 {
		return false
	}
	y.insert(env.Line, env.Column-1, entries...)
	return true
}

// addRole adds a Role and its binding beside the binding of leader election's role, which kubebuilder makes, and lists
// them in its kustomization. kept says why it cannot.
func (e *edits) addRole(name string, like *document) (kept string) {
	if like == nil {
		return "there is no leader_election_role_binding.yaml as kubebuilder makes it, beside which to put a Role"
	}
	dir := filepath.Dir(like.file)
	file := filepath.Join(dir, "rota_role.yaml")
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return filepath.Base(file) + " is there already, beside " + like.rel + ": it is left alone"
	}
	y := e.yaml(filepath.Join(dir, "kustomization.yaml"))
	if y.file == nil {
		return "there is no kustomization.yaml beside " + like.rel
	}
	var root yaml.Node
	if err := yaml.Unmarshal(y.file.old, &root); err != nil || len(root.Content) == 0 {
		return "the kustomization.yaml beside " + like.rel + " cannot be read"
	}
	list := value(root.Content[0], "resources")
	at := slices.Index(texts(list), filepath.Base(like.file))
	switch {
	case at < 0:
		return "the kustomization.yaml beside it does not list " + like.rel
	case list.Style&yaml.FlowStyle != 0:
		return "the kustomization.yaml beside " + like.rel + " has its resources in brackets"
	}
	var subjects strings.Builder
	for _, s := range items(value(like.Node, "subjects")) {
		fmt.Fprintf(&subjects, "- kind: %s\n  name: %s\n", scalar(s, "kind"), scalar(s, "name"))
		if ns := scalar(s, "namespace"); ns != "" {
			fmt.Fprintf(&subjects, "  namespace: %s\n", ns)
		}
	}
	text := fmt.Sprintf(rotaRole, name, subjects.String())
	e.put(file, &fileEdit{created: true, changes: []change{{0, 0, text}}})
	if !slices.Contains(texts(list), filepath.Base(file)) {
		y.insert(list.Content[at].Line+1, list.Column-1, "- "+filepath.Base(file))
	}
	return ""
}

// rotaRole is what a member needs in its own namespace; a test holds it to permission.Rules.
const rotaRole = `# What Rota needs in the operator's namespace: a ConfigMap with the table, and Leases.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: rota-role
rules:
- apiGroups: [""]
  resources: ["configmaps"]
  verbs: ["create"]
- apiGroups: [""]
  resources: ["configmaps"]
  resourceNames: ["%s"]
  verbs: ["get", "list", "watch", "update"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["get", "list", "watch", "create", "update", "delete"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: rota-rolebinding
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: rota-role
subjects:
%s`

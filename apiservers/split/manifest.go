package split

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// A Manifest is the static Pod of a kube-controller-manager. It keeps unknown fields.
type Manifest struct {
	from      string
	pod       map[string]any
	container string // its name
	image     string
	command   Command
	inArgs    bool // the flags are in args, not in command
}

// mirror is the kubelet's annotation on its copy of a static Pod in the API server.
const mirror = "kubernetes.io/config.mirror"

// ParseManifest reads the manifest of a static Pod. from names it in errors.
func ParseManifest(from string, text []byte) (*Manifest, error) {
	m := &Manifest{from: from}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s is not a manifest of %s: %w", from, program, fmt.Errorf(format, args...))
	}
	if err := yaml.UnmarshalStrict(text, &m.pod); err != nil {
		return nil, wrong("%w", err)
	}
	if kind, _ := m.pod["kind"].(string); kind != "Pod" || m.pod["apiVersion"] != "v1" {
		return nil, wrong("it is %s %q, want the static Pod of apiVersion v1", m.pod["apiVersion"], kind)
	}
	if _, ok := field[map[string]any](m.pod, "metadata", "annotations")[mirror]; ok {
		return nil, wrong("it is the mirror Pod of the API server; take the file that the kubelet reads")
	}
	containers := field[[]any](m.pod, "spec", "containers")
	if len(containers) != 1 {
		return nil, wrong("it has %d containers, want one", len(containers))
	}
	c, _ := containers[0].(map[string]any)
	m.container, _ = c["name"].(string)
	m.image, _ = c["image"].(string)
	command, ok1 := words(c["command"])
	args, ok2 := words(c["args"])
	if !ok1 || !ok2 {
		return nil, wrong("container %s: command and args have to be lists of strings", m.container)
	}
	if len(command) == 0 {
		return nil, wrong("container %s has no command", m.container)
	}
	m.inArgs = len(args) > 0 && len(command) == 1
	var err error
	if m.command, err = ParseCommand(append(command, args...)); err != nil {
		return nil, wrong("container %s: %w", m.container, err)
	}
	return m, nil
}

var imageVersion = regexp.MustCompile(`:(v?\d+\.\d+\.\d+[^/:@]*)(@[^/]*)?$`)

// Version returns the version in the image's tag, or "".
func (m *Manifest) Version() string { return versionOf(m.image) }

func versionOf(image string) string {
	if match := imageVersion.FindStringSubmatch(image); match != nil {
		return match[1]
	}
	return ""
}

// divide returns the manifest of one group with the given command and port.
func (m *Manifest) divide(group string, command Command, before, after int) ([]byte, error) {
	pod := clone(m.pod).(map[string]any)
	metadata := field[map[string]any](pod, "metadata")
	if metadata == nil {
		return nil, fmt.Errorf("%s has no metadata", m.from)
	}
	name, _ := metadata["name"].(string)
	if name == "" {
		return nil, fmt.Errorf("%s: the Pod has no name", m.from)
	}
	metadata["name"] = name + "-" + group
	labels, _ := metadata["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[LabelGroup] = group
	metadata["labels"] = labels

	c := field[[]any](pod, "spec", "containers")[0].(map[string]any)
	list := command.Words()
	delete(c, "args")
	if m.inArgs {
		c["command"], c["args"] = list[:1], list[1:]
	} else {
		c["command"] = list
	}
	if err := movePorts(c, before, after); err != nil {
		return nil, fmt.Errorf("%s: container %s: %w", m.from, m.container, err)
	}
	return yaml.Marshal(pod)
}

// LabelGroup is the label of the Pods with the name of their group.
const LabelGroup = "rota.dev/kcm-group"

// movePorts changes the container's ports and probes to --secure-port.
func movePorts(c map[string]any, before, after int) error {
	named := map[string]int{}
	ports, _ := c["ports"].([]any)
	for _, p := range ports {
		port, _ := p.(map[string]any)
		for _, key := range []string{"containerPort", "hostPort"} {
			if n, ok := number(port[key]); ok && n == before {
				port[key] = after
			}
		}
		if name, ok := port["name"].(string); ok {
			named[name], _ = number(port["containerPort"])
		}
	}
	var errs []error
	for _, name := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		probe, _ := c[name].(map[string]any)
		if probe == nil {
			continue
		}
		follows := false
		for _, kind := range []string{"httpGet", "tcpSocket"} {
			action, _ := probe[kind].(map[string]any)
			if action == nil {
				continue
			}
			switch port := action["port"].(type) {
			case string:
				follows = named[port] == after
			default:
				if n, _ := number(port); n == before {
					action["port"], follows = after, true
				}
			}
			if !follows {
				errs = append(errs, fmt.Errorf("%s asks port %v, which is not --secure-port %d, so its port in "+
					"each group is unknown", name, action["port"], before))
				follows = true
			}
		}
		if !follows {
			errs = append(errs, fmt.Errorf("%s is neither httpGet nor tcpSocket, so its port cannot be changed", name))
		}
	}
	return errors.Join(errs...)
}

// field returns the value at a path of nested maps, or the zero value.
func field[T any](m map[string]any, path ...string) T {
	var zero T
	for _, key := range path[:len(path)-1] {
		m, _ = m[key].(map[string]any)
	}
	if v, ok := m[path[len(path)-1]].(T); ok {
		return v
	}
	return zero
}

// number returns a number of a decoded document.
func number(v any) (int, bool) {
	switch n := v.(type) {
	case float64:
		return int(n), n == float64(int(n))
	case int64:
		return int(n), true
	case int:
		return n, true
	}
	return 0, false
}

// words returns a list of strings. A missing value is an empty list.
func words(v any) ([]string, bool) {
	if v == nil {
		return nil, true
	}
	list, ok := v.([]any)
	out := make([]string, 0, len(list))
	for _, item := range list {
		s, isString := item.(string)
		ok = ok && isString
		out = append(out, s)
	}
	return out, ok
}

// clone copies a decoded document.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for key, value := range out {
			out[key] = clone(value)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i, value := range out {
			out[i] = clone(value)
		}
		return out
	}
	return v
}

// script returns a shell script that executes the command.
func script(c Command) []byte {
	var b strings.Builder
	list := c.Words()
	b.WriteString("exec " + quote(list[0]))
	for _, word := range list[1:] {
		b.WriteString(" \\\n  " + quote(word))
	}
	b.WriteString("\n")
	return []byte(b.String())
}

func quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("-_=./:,+@%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

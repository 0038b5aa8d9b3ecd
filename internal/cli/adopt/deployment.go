package adopt

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// podFields are the environment variables that a member reads, by the field of the downward API.
var podFields = []struct{ name, field string }{
	{"POD_NAME", "metadata.name"}, {"POD_UID", "metadata.uid"}, {"POD_NAMESPACE", "metadata.namespace"},
}

// minGrace is above LeaveTimeout (25 s) and the default GracefulShutdownTimeout (30 s) together.
const minGrace = 56

// grace is what is written.
const grace = 60

// deployment looks at one of the operator's.
func (s *source) deployment(d *workload) {
	pod, container := d.pod, d.container
	at := func(n *yaml.Node) place {
		if n == nil {
			n = container
		}
		return place{d.rel, n.Line}
	}
	edits := s.edits.yaml(d.file)
	var missing []string
	env := value(container, "env")
	for _, f := range podFields {
		if !slices.ContainsFunc(items(env), func(n *yaml.Node) bool { return scalar(n, "name") == f.name }) {
			missing = append(missing, f.name)
		}
	}
	if len(missing) > 0 {
		f := s.found(Must, codePodEnv, at(env), "container %s has no %s",
			scalar(container, "name"), strings.Join(missing, ", "))
		f.write(func() bool { return edits.addEnv(container, missing) })
	}
	s.grace(d.document, pod, edits)
	spec := value(d.Node, "spec")
	if scalar(d.Node, "kind") == "Deployment" {
		s.rollout(d.document, spec, edits)
	}
	if n := value(spec, "replicas"); n == nil || n.Value == "1" {
		line := d.Node
		if n != nil {
			line = n
		}
		s.found(Look, codeReplicas, at(line), "it has one replica")
	}
	if probe := value(container, "readinessProbe"); probe == nil {
		s.found(Must, codeReadiness, at(container), "container %s has no readinessProbe", scalar(container, "name"))
	}
	for _, list := range []string{"args", "command"} {
		for _, arg := range items(value(container, list)) {
			if flag := strings.TrimLeft(arg.Value, "-"); strings.HasPrefix(flag, "leader-elect") ||
				strings.HasPrefix(flag, "enable-leader-election") {
				s.found(Fine, codeFlag, at(arg), "the argument %s", arg.Value)
			}
		}
	}
}

// managerOf returns the container of the manager: the one named so, or the only one.
func managerOf(containers []*yaml.Node) *yaml.Node {
	for _, c := range containers {
		if scalar(c, "image") != "" && (len(containers) == 1 || strings.Contains(scalar(c, "name"), "manager") ||
			strings.Contains(scalar(c, "name"), "operator") || strings.Contains(scalar(c, "name"), "controller")) {
			return c
		}
	}
	return nil
}

func (s *source) grace(d *document, pod *yaml.Node, edits *yamlEdits) {
	n := value(pod, "terminationGracePeriodSeconds")
	seconds, err := 30, error(nil)
	if n != nil {
		seconds, err = strconv.Atoi(n.Value)
	}
	if err == nil && seconds >= minGrace {
		return
	}
	line, what := n, "terminationGracePeriodSeconds is 30, the default"
	if n == nil {
		line = pod
	} else {
		what = "terminationGracePeriodSeconds is " + n.Value
	}
	f := s.found(Must, codeGrace, place{d.rel, line.Line}, "%s", what)
	f.Instead = fmt.Sprintf("terminationGracePeriodSeconds: %d, which is more than "+
		"rota.Options.LeaveTimeout (25 s) and the "+
		"manager's GracefulShutdownTimeout (30 s) together", grace)
	f.write(func() bool {
		if n != nil {
			return edits.replace(n, strconv.Itoa(grace))
		}
		return edits.addKey(pod, "terminationGracePeriodSeconds: "+strconv.Itoa(grace))
	})
}

func (s *source) rollout(d *document, spec *yaml.Node, edits *yamlEdits) {
	strategy := value(spec, "strategy")
	unavailable := scalar(strategy, "rollingUpdate", "maxUnavailable")
	switch {
	case scalar(strategy, "type") == "Recreate":
		s.found(Look, codeRollout, place{d.rel, strategy.Line}, "the strategy is Recreate: nobody works while a version is "+
			"replaced")
	case strategy == nil:
		f := s.found(Look, codeRollout, place{d.rel, spec.Line}, "it has no strategy")
		f.write(func() bool {
			return edits.addBefore(spec, "template", "strategy:",
				"  rollingUpdate:", "    maxUnavailable: 0", "    maxSurge: 1")
		})
	case unavailable != "0" && unavailable != "0%":
		s.found(Look, codeRollout, place{d.rel, strategy.Line}, "maxUnavailable is not 0")
	}
}

package split

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// A Process is a kube-controller-manager that is running, or will be when a kubelet reads its manifest.
type Process struct {
	// Source is where it was found. Host is the same for processes on one machine.
	Source, Host string
	// Version is its image's version, or "".
	Version string
	Command Command
}

// ParseProcesses finds the processes in a file: a manifest, or command lines such as `ps -eo args` prints. It ignores
// other Pods and commands.
func ParseProcesses(from, host string, text []byte) ([]Process, error) {
	var pod map[string]any
	err := yaml.Unmarshal(text, &pod)
	if _, ok := pod["kind"]; ok {
		return podProcesses(from, host, pod)
	}
	if slices.Contains([]string{".yaml", ".yml", ".json", ".manifest"}, path.Ext(from)) && err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	var out []Process
	lines := strings.ReplaceAll(string(text), "\\\n", " ")
	for line := range strings.Lines(lines) {
		first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "exec "), " ")
		if path.Base(first) != program {
			continue
		}
		list, err := Words(strings.TrimPrefix(strings.TrimSpace(line), "exec "))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		c, err := ParseCommand(list)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		out = append(out, Process{Source: from, Host: host, Command: c})
	}
	return out, nil
}

func podProcesses(from, host string, pod map[string]any) ([]Process, error) {
	var out []Process
	for _, item := range field[[]any](pod, "spec", "containers") {
		c, _ := item.(map[string]any)
		command, ok1 := words(c["command"])
		args, ok2 := words(c["args"])
		if !ok1 || !ok2 || len(command) == 0 || path.Base(command[0]) != program {
			continue
		}
		parsed, err := ParseCommand(append(command, args...))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		image, _ := c["image"].(string)
		out = append(out, Process{Source: from, Host: host, Version: versionOf(image), Command: parsed})
	}
	return out, nil
}

// Compare returns the differences between the processes and the plan: controllers that run nowhere, twice or elsewhere,
// and missing groups. Processes with the same Lease are replicas.
func Compare(p *Plan, processes []Process) []string {
	var findings []string
	add := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }

	type leader struct {
		name    string   // as in messages
		first   []string // the controllers of its first replica
		runs    []string // the controllers of any of its replicas
		sources []string
	}
	leaders := map[string]*leader{}
	ports := map[string]Process{}
	for _, proc := range processes {
		runs, err := proc.Command.runs(p.Catalog)
		if err != nil {
			add("%s: %s", proc.Source, oneLine(err))
		}
		if v := proc.Version; v != "" && minor(v) != minor(p.Catalog.Version) && minor(p.Catalog.Version) != "" {
			add("%s is %s, and the plan is for %s: controllers may have come and gone", proc.Source, v, p.Catalog.Version)
		}
		lease := proc.Command.lease()
		key, name := lease, "lease "+lease
		if lease == "" {
			add("%s has no leader election, so each of its replicas works", proc.Source)
			key, name = " "+proc.Source, proc.Source
		}
		if ns := proc.Command.namespace(); lease != "" && ns != p.Namespace() {
			add("%s has its lease in namespace %s, want %s", proc.Source, ns, p.Namespace())
			key, name = ns+"/"+lease, fmt.Sprintf("lease %s/%s", ns, lease)
		}
		if port, err := proc.Command.port(); err == nil && proc.Host != "" {
			at := fmt.Sprintf("%s:%d", proc.Host, port)
			if other, ok := ports[at]; ok && other.Command.lease() != lease {
				add("%s and %s both listen on port %d", other.Source, proc.Source, port)
			}
			ports[at] = proc
		}
		l := leaders[key]
		if l == nil {
			leaders[key] = &leader{name, runs, slices.Clone(runs), []string{proc.Source}}
			continue
		}
		if !slices.Equal(l.first, runs) {
			add("%s: %s and %s do not run the same controllers: %s", l.name, l.sources[0], proc.Source,
				difference(l.first, runs))
		}
		l.sources = append(l.sources, proc.Source)
		l.runs = append(l.runs, runs...)
	}

	in := map[string][]string{} // controller → the processes that run it
	for _, key := range slices.Sorted(maps.Keys(leaders)) {
		slices.Sort(leaders[key].runs)
		for _, name := range slices.Compact(leaders[key].runs) {
			in[name] = append(in[name], leaders[key].name)
		}
	}
	planned := map[string]Planned{}
	for _, g := range p.Groups {
		if leaders[g.Lease] == nil {
			add("group %s: no process has the lease %s", g.Name, g.Lease)
		}
		for _, name := range g.On {
			planned[name] = g
		}
	}
	for _, name := range p.Catalog.names {
		g, on := planned[name]
		switch who := in[name]; {
		case on && len(who) == 0:
			add("%s runs nowhere, want group %s", name, g.Name)
		case len(who) > 1:
			add("%s runs in %d: %s", name, len(who), strings.Join(who, " and "))
		case !on && len(who) > 0:
			add("%s is off in the plan, and runs in %s", name, who[0])
		case on && who[0] != "lease "+g.Lease:
			add("%s runs in %s, want lease %s of group %s", name, who[0], g.Lease, g.Name)
		}
	}
	return findings
}

func minor(version string) string {
	if m := minorVersion.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return ""
}

// difference describes the elements that only one of two lists has.
func difference(a, b []string) string {
	var parts []string
	for _, side := range []struct {
		what      string
		has, hasn []string
	}{{"only the first", a, b}, {"only the second", b, a}} {
		var left []string
		for _, name := range side.has {
			if !slices.Contains(side.hasn, name) {
				left = append(left, name)
			}
		}
		if len(left) > 0 {
			parts = append(parts, side.what+": "+strings.Join(left, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// A LeaseState is the state of a Lease in a cluster.
type LeaseState struct {
	Holder string
	// Age is the time since the last renewal. Duration is the age at which another process may take the Lease.
	Age, Duration time.Duration
}

func (s LeaseState) led() bool { return s.Holder != "" && s.Holder != Holder && s.Age <= s.Duration }

// CompareLeases returns where a cluster's Leases, by name, differ from the Leases of a cluster that has migrated to the
// plan: every group has a leader, and the undivided kube-controller-manager cannot have one.
func CompareLeases(p *Plan, leases map[string]LeaseState) []string {
	var findings []string
	add := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	for _, g := range p.Groups {
		switch s, ok := leases[g.Lease]; {
		case !ok:
			add("group %s has no leader: there is no lease %s", g.Name, g.Lease)
		case s.Holder == Holder:
			add("group %s has no leader: hold-groups.yaml holds the lease %s", g.Name, g.Lease)
		case s.Holder == "":
			add("group %s has no leader: no process holds the lease %s", g.Name, g.Lease)
		case !s.led():
			add("group %s has no leader: %s renewed the lease %s last %s ago", g.Name, s.Holder, g.Lease,
				s.Age.Round(time.Second))
		}
	}
	switch s := leases[p.UndividedLease()]; {
	case s.led():
		add("%s holds the lease %s: an undivided %s works", s.Holder, p.UndividedLease(), program)
	case s.Holder != Holder:
		add("nothing keeps an undivided %s from working if it is started: apply hold-undivided.yaml", program)
	}
	return findings
}

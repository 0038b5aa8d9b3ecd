package split

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/require"
)

// processes reads what a plan writes, for nodes a, b and c, with an edit of the manifests of node a.
func processes(t *testing.T, p *Plan, edit func(path, text string) string) []Process {
	t.Helper()
	files, err := p.Files()
	require.NoError(t, err)
	var out []Process
	for _, node := range []string{"a", "b", "c"} {
		for _, f := range files {
			text := string(f.Text)
			if node == "a" && edit != nil {
				text = edit(f.Path, text)
			}
			if strings.HasPrefix(f.Path, "hold-") || f.Path == "rbac.yaml" {
				if found, err := ParseProcesses(f.Path, node, f.Text); strings.Contains(string(f.Text), "\n---") {
					continue // several documents
				} else if err != nil || len(found) > 0 {
					t.Errorf("%s: %v, %v", f.Path, found, err)
				}
				continue
			}
			found, err := ParseProcesses(node+"/"+f.Path, node, []byte(text))
			require.NoError(t, err)
			out = append(out, found...)
		}
	}
	return out
}

func TestCompare(t *testing.T) {
	p, err := planOf(t, kubeadm(t), nil)
	require.NoError(t, err)
	undivided, err := ParseProcesses("kcm.yaml", "d", []byte(kubeadm(t)))
	require.NoError(t, err)
	garbage := func(old, text string) func(string, string) string {
		return func(path, all string) string {
			if strings.Contains(path, "garbage") {
				return strings.ReplaceAll(all, old, text)
			}
			return all
		}
	}
	if got := Compare(p, processes(t, p, nil)); len(got) > 0 {
		t.Errorf("the plan itself: %q", got)
	}
	for name, c := range map[string]struct {
		processes []Process
		want      []string // each begins a finding; all there are
	}{
		"nowhere": {
			slices.DeleteFunc(processes(t, p, nil), func(proc Process) bool { return strings.Contains(proc.Source, "garbage") }),
			append([]string{"group garbage: no process has the lease kube-controller-manager-garbage"}, nowhere(p, "garbage")...),
		},
		"replicas differ": {
			processes(t, p, garbage("ttl-after-finished-controller", "ttl-controller")),
			[]string{
				"lease kube-controller-manager-garbage: a/manifests/kube-controller-manager-garbage.yaml and b/manifests/kube-controller-manager-garbage.yaml do not run the same controllers: only the first: ttl-controller; only the second: ttl-after-finished-controller",
				"lease kube-controller-manager-garbage: a/manifests/kube-controller-manager-garbage.yaml and c/",
				"ttl-controller runs in 2: lease kube-controller-manager-cluster and lease kube-controller-manager-garbage",
			},
		},
		"no leader election": {
			processes(t, p, garbage("--leader-elect=true", "--leader-elect=false")),
			append([]string{"a/manifests/kube-controller-manager-garbage.yaml has no leader election"}, twice(p, "garbage")...),
		},
		"the old one is back": {append(processes(t, p, nil), undivided...), twice(p, "workloads", "garbage", "cluster")},
		"the key again": {
			processes(t, p, garbage("--leader-elect=true", "--service-account-private-key-file=/sa.key")),
			[]string{
				"lease kube-controller-manager-garbage: a/", "lease kube-controller-manager-garbage: a/",
				"serviceaccount-token-controller runs in 2: lease kube-controller-manager-cluster and lease kube-controller-manager-garbage",
			},
		},
		"an alias": {processes(t, p, garbage("ttl-after-finished-controller", "ttl-after-finished")), nil},
		"an unknown name": {
			processes(t, p, garbage("ttl-after-finished-controller", "ttl-controller,ttlx")),
			[]string{
				`a/manifests/kube-controller-manager-garbage.yaml: --controllers: no controller of v1.36.3 is called "ttlx"`, "lease ", "lease ",
				"ttl-controller runs in 2: ",
			},
		},
		"another version": {
			processes(t, p, garbage(":v1.36.3", ":v1.37.0")),
			[]string{"a/manifests/kube-controller-manager-garbage.yaml is v1.37.0, and the plan is for v1.36.3"},
		},
		"one port": {
			processes(t, p, garbage("--secure-port=10267", "--secure-port=10257")),
			[]string{"a/manifests/kube-controller-manager-workloads.yaml and a/manifests/kube-controller-manager-garbage.yaml both listen on port 10257"},
		},
		"none at all": {
			nil, append([]string{
				"group workloads: no process has the lease kube-controller-manager-workloads", "group garbage: no process", "group cluster: no process",
			}, nowhere(p, "workloads", "garbage", "cluster")...),
		},
	} {
		got := Compare(p, c.processes)
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s (-want beginnings +got):\n%s", name, cmp.Diff(c.want, got))
		}
	}
}

// twice are the findings when the controllers of groups run elsewhere, too.
func twice(p *Plan, groups ...string) []string {
	var out []string
	for _, name := range p.Catalog.Names() {
		for _, g := range p.Groups {
			for _, on := range g.On {
				for _, want := range groups {
					if on == name && g.Name == want {
						out = append(out, name+" runs in 2: ")
					}
				}
			}
		}
	}
	return out
}

func nowhere(p *Plan, groups ...string) []string {
	var out []string
	for _, line := range twice(p, groups...) {
		out = append(out, strings.Replace(line, "runs in 2: ", "runs nowhere, want group ", 1))
	}
	return out
}

func TestParseProcesses(t *testing.T) {
	ps := `/usr/bin/containerd --x
/usr/local/bin/kube-controller-manager --controllers=*,-job --secure-port=1
grep kube-controller-manager
kube-controller-manager
`
	got, err := ParseProcesses("-", "", []byte(ps))
	if err != nil || len(got) != 2 || got[0].Command.Value("secure-port") != "1" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseProcesses("etcd.yaml", "", []byte(kubeadm(t, "    - kube-controller-manager\n    - --allocate", "    - etcd\n    - --allocate"))); err != nil || len(got) > 0 {
		t.Errorf("another Pod: %v, %v", got, err)
	}
	if _, err := ParseProcesses("broken.yaml", "", []byte("a: b: c")); err == nil || !strings.Contains(err.Error(), "broken.yaml") {
		t.Errorf("%v, want the file's name", err)
	}
}

func TestCompareLeases(t *testing.T) {
	p, err := planOf(t, kubeadm(t), nil)
	require.NoError(t, err)
	leases := func(edit func(map[string]LeaseState)) map[string]LeaseState {
		m := map[string]LeaseState{"kube-controller-manager": {Holder, time.Hour, time.Hour}, "other": {}}
		for _, g := range p.Groups {
			m[g.Lease] = LeaseState{"node-1", 2 * time.Second, 15 * time.Second}
		}
		edit(m)
		return m
	}
	const garbage = "kube-controller-manager-garbage"
	for want, edit := range map[string]func(map[string]LeaseState){
		"": func(map[string]LeaseState) {},
		"group garbage has no leader: there is no lease kube-controller-manager-garbage":                               func(m map[string]LeaseState) { delete(m, garbage) },
		"group garbage has no leader: node-1 renewed the lease kube-controller-manager-garbage last 16s ago":           func(m map[string]LeaseState) { m[garbage] = LeaseState{"node-1", 16 * time.Second, 15 * time.Second} },
		"group garbage has no leader: hold-groups.yaml holds the lease kube-controller-manager-garbage":                func(m map[string]LeaseState) { m[garbage] = LeaseState{Holder, 0, time.Hour} },
		"group garbage has no leader: no process holds the lease kube-controller-manager-garbage":                      func(m map[string]LeaseState) { m[garbage] = LeaseState{"", 0, time.Hour} },
		"node-2 holds the lease kube-controller-manager: an undivided kube-controller-manager works":                   func(m map[string]LeaseState) { m["kube-controller-manager"] = LeaseState{"node-2", 0, time.Second} },
		"nothing keeps an undivided kube-controller-manager from working if it is started: apply hold-undivided.yaml":  func(m map[string]LeaseState) { m["kube-controller-manager"] = LeaseState{"node-2", 20, 10} },
		"nothing keeps an undivided kube-controller-manager from working if it is started: apply hold-undivided.yaml ": func(m map[string]LeaseState) { delete(m, "kube-controller-manager") },
	} {
		if got := strings.Join(CompareLeases(p, leases(edit)), "\n"); got != strings.TrimSpace(want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

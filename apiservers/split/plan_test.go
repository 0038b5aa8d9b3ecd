package split

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

func kubeadm(t *testing.T, edits ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/kubeadm.yaml")
	require.NoError(t, err)
	out := string(text)
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(out, edits[i]) {
			t.Fatalf("the manifest has no %q", edits[i])
		}
		out = strings.ReplaceAll(out, edits[i], edits[i+1])
	}
	return out
}

func catalog(t *testing.T) Catalog {
	t.Helper()
	cat, err := CatalogOf(Verified)
	require.NoError(t, err)
	return cat
}

func planOf(t *testing.T, manifest string, groups []Group) (*Plan, error) {
	t.Helper()
	m, err := ParseManifest("kcm.yaml", []byte(manifest))
	if err != nil {
		return nil, err
	}
	return New(Input{Manifest: m}, groups, catalog(t))
}

// The files of kubeadm's manifest are in testdata, so that the review of a change shows what operators get.
func TestFiles(t *testing.T) {
	p, err := planOf(t, kubeadm(t), nil)
	require.NoError(t, err)
	files, err := p.Files()
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, f.Path)
		golden.File(t, filepath.Join("testdata", "kubeadm", f.Path), string(f.Text))
		if !Written(f.Text) {
			t.Errorf("%s cannot be recognized", f.Path)
		}
	}
	want := []string{
		"manifests/kube-controller-manager-workloads.yaml", "manifests/kube-controller-manager-garbage.yaml",
		"manifests/kube-controller-manager-cluster.yaml", "rbac.yaml", "hold-undivided.yaml", "hold-groups.yaml",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
}

// Whatever runs undivided runs in exactly one group, and nothing else.
func TestEveryControllerOnce(t *testing.T) {
	for _, list := range []string{
		"*,bootstrapsigner,tokencleaner", "*", "-job,*", "*,-garbagecollector,-attachdetach", "*,selinux-warning-controller",
		"-deployment,deployment,*", "job,ttl-after-finished,nodeipam", "*,-serviceaccount-token-controller",
	} {
		p, err := planOf(t, kubeadm(t, "*,bootstrapsigner,tokencleaner", list), nil)
		if err != nil {
			t.Fatalf("%s: %v", list, err)
		}
		want, err := p.undivided.runs(p.Catalog)
		require.NoError(t, err)
		var got []string
		for _, g := range p.Groups {
			runs, err := g.Command.runs(p.Catalog)
			require.NoError(t, err)
			if d := cmp.Diff(g.On, runs); d != "" {
				t.Errorf("%s: group %s runs something else than planned:\n%s", list, g.Name, d)
			}
			got = append(got, runs...)
		}
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-undivided +groups):\n%s", list, d)
		}
		all := slices.Concat(got, p.Off)
		slices.Sort(all)
		if d := cmp.Diff(p.Catalog.Names(), all); d != "" {
			t.Errorf("%s: neither on nor off:\n%s", list, d)
		}
		if !slices.Contains(got, tokenController) {
			t.Errorf("%s: no token controller, which runs whatever the list says", list)
		}
	}
}

func TestOnlyOneGroupHasTheSigningKey(t *testing.T) {
	p, err := planOf(t, kubeadm(t), nil)
	require.NoError(t, err)
	for _, g := range p.Groups {
		if got, want := g.Command.Value("service-account-private-key-file") != "", g.Name == "cluster"; got != want {
			t.Errorf("group %s has the key: %v, want %v", g.Name, got, want)
		}
	}
	p, err = planOf(t, kubeadm(t, "    - --service-account-private-key-file=/etc/kubernetes/pki/sa.key\n", ""), nil)
	require.NoError(t, err)
	if !slices.Contains(p.Off, tokenController) {
		t.Errorf("without a key the token controller is off; off are %q", p.Off)
	}
}

func change(t *testing.T, edit func(groups []Group) []Group) []Group {
	t.Helper()
	_, groups := DefaultGroups()
	return edit(groups)
}

func without(name string) func([]Group) []Group {
	return func(groups []Group) []Group {
		for i := range groups {
			groups[i].Controllers = slices.DeleteFunc(groups[i].Controllers, func(n string) bool { return n == name })
		}
		return groups
	}
}

func with(group int, names ...string) func([]Group) []Group {
	return func(groups []Group) []Group {
		groups[group].Controllers = append(groups[group].Controllers, names...)
		return groups
	}
}

func TestBadGroups(t *testing.T) {
	for name, c := range map[string]struct {
		edit func([]Group) []Group
		want []string
	}{
		"in two":          {with(0, "garbagecollector"), []string{"garbage-collector-controller is in 2 groups: workloads, garbage"}},
		"in none":         {without("job-controller"), []string{"job-controller is in no group"}},
		"twice":           {with(0, "job"), []string{"job-controller is named 2 times in group workloads"}},
		"unknown":         {with(0, "deploymnt-controller"), []string{`group workloads: no controller of v1.36.3 is called "deploymnt-controller"; the nearest name is deployment-controller`}},
		"unknown alias":   {with(1, "podcg"), []string{"nearest name is pod-garbage-collector-controller"}},
		"several at once": {func(g []Group) []Group { return without("job-controller")(with(0, "nonsense")(g)) }, []string{"job-controller is in no group", `"nonsense"`}},
		"apart": {
			func(g []Group) []Group { return with(2, migrator)(without(migrator)(g)) },
			[]string{"garbage-collector-controller (group garbage) and storage-version-migrator-controller (group cluster) must be in one group: ", "graph"},
		},
		"lease of the undivided": {func(g []Group) []Group { g[1].Lease = "kube-controller-manager"; return g }, []string{"group garbage: lease kube-controller-manager belongs to the undivided"}},
		"lease twice":            {func(g []Group) []Group { g[1].Lease, g[2].Lease = "a", "a"; return g }, []string{"groups garbage and cluster have the same lease a"}},
		"bad lease":              {func(g []Group) []Group { g[1].Lease = "A"; return g }, []string{`group garbage: lease "A"`}},
		"name twice":             {func(g []Group) []Group { g[1].Name = "cluster"; return g }, []string{"two groups are called cluster"}},
		"no name":                {func(g []Group) []Group { g[1].Name = ""; return g }, []string{"group 2 has no name"}},
		"bad name":               {func(g []Group) []Group { g[1].Name = "a/b"; return g }, []string{`group "a/b"`}},
		"port of the scheduler":  {func(g []Group) []Group { g[1].SecurePort = 10259; return g }, []string{"group garbage: securePort 10259 belongs to kube-scheduler"}},
		"port twice":             {func(g []Group) []Group { g[1].SecurePort = 10257; return g }, []string{"groups workloads and garbage have the same securePort 10257"}},
		"port too high":          {func(g []Group) []Group { g[1].SecurePort = 70000; return g }, []string{"securePort 70000 is not a port"}},
		"nothing on": {
			func(g []Group) []Group {
				return append(without("selinux-warning-controller")(g), Group{Name: "x", Controllers: []string{"selinux-warning-controller"}})
			},
			[]string{"group x would run nothing"},
		},
	} {
		_, err := planOf(t, kubeadm(t), change(t, c.edit))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

func TestBadManifests(t *testing.T) {
	const command = "    - kube-controller-manager\n    - --allocate"
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {"", "kcm.yaml is not a manifest of kube-controller-manager"},
		"no YAML":            {"a: b: c", "kcm.yaml is not a manifest of kube-controller-manager"},
		"a key twice":        {"kind: Pod\nkind: Pod\n", "already set"},
		"another kind":       {kubeadm(t, "kind: Pod", "kind: Deployment"), `"Deployment", want the static Pod`},
		"another program":    {kubeadm(t, command, "    - kube-scheduler\n    - --allocate"), `container kube-controller-manager: the command is "kube-scheduler"`},
		"a shell":            {kubeadm(t, command, "    - /bin/sh\n    - -c\n    - --allocate"), `the command is "/bin/sh"`},
		"a mirror Pod":       {kubeadm(t, "  labels:\n", "  annotations:\n    kubernetes.io/config.mirror: x\n  labels:\n"), "mirror Pod of the API server"},
		"two containers":     {kubeadm(t, "  hostNetwork: true", "  - name: b\n  hostNetwork: true"), "2 containers"},
		"an argument":        {kubeadm(t, command, "    - kube-controller-manager\n    - now\n    - --allocate"), `takes flags only, got "now"`},
		"an unknown name":    {kubeadm(t, "bootstrapsigner", "bootstrapsiner"), `called "bootstrapsiner"; the nearest name is bootstrap-signer-controller`},
		"no leader election": {kubeadm(t, "--leader-elect=true", "--leader-elect=false"), "--leader-elect=false"},
		"leader migration":   {kubeadm(t, "--leader-elect=true", "--enable-leader-migration"), "--enable-leader-migration"},
		"coordinated":        {kubeadm(t, "--leader-elect=true", "--feature-gates=A=true,CoordinatedLeaderElection=true"), "CoordinatedLeaderElection"},
		"all beta":           {kubeadm(t, "--leader-elect=true", "--feature-gates=kube:AllBeta=true"), "CoordinatedLeaderElection"},
		"no port":            {kubeadm(t, "--leader-elect=true", "--secure-port=0"), "--secure-port=0"},
		"another probe":      {kubeadm(t, "port: probe-port", "port: 10252"), "livenessProbe asks port 10252, which is not --secure-port 10257"},
		"an exec probe":      {kubeadm(t, "      httpGet:\n        host: 127.0.0.1\n        path: /healthz\n        port: probe-port\n        scheme: HTTPS\n", "      exec:\n        command: [true]\n"), "livenessProbe is neither httpGet"},
		"no name":            {kubeadm(t, "  name: kube-controller-manager\n  namespace", "  namespace"), "the Pod has no name"},
	} {
		p, err := planOf(t, c.text, nil)
		if err == nil {
			_, err = p.Files()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := planOf(t, kubeadm(t, "--leader-elect=true", "--feature-gates=AllBeta=true,CoordinatedLeaderElection=false"), nil); err != nil {
		t.Error(err)
	}
}

// Probes of older kubeadm versions have the port's number, and flags may be in args.
func TestOlderManifest(t *testing.T) {
	text := kubeadm(t, "port: probe-port", "port: 10257", "    - kube-controller-manager\n    - --allocate", "    - /usr/bin/kube-controller-manager\n    args:\n    - --secure_port=10257\n    - --allocate")
	p, err := planOf(t, text, nil)
	require.NoError(t, err)
	files, err := p.Files()
	require.NoError(t, err)
	got := string(files[1].Text)
	for _, want := range []string{"port: 10267", "containerPort: 10267", "args:\n    - --secure-port=10267", "command:\n    - /usr/bin/kube-controller-manager\n    image", "name: kube-controller-manager-garbage"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "10257") {
		t.Errorf("the port of another group is in\n%s", got)
	}
}

func TestCommandLine(t *testing.T) {
	list, err := Words(`/opt/kube-controller-manager --controllers '*,-job' --cluster-name="a b" --v=2 \
  --service-account-private-key-file /sa.key --leader-elect`)
	require.NoError(t, err)
	c, err := ParseCommand(list)
	require.NoError(t, err)
	p, err := New(Input{Command: c}, nil, catalog(t))
	require.NoError(t, err)
	files, err := p.Files()
	require.NoError(t, err)
	want := `#!/bin/sh
# Written by ` + "`rota split kcm`" + ` from kube-controller-manager v1.36.3: group garbage, 9 controllers.
exec /opt/kube-controller-manager \
  --controllers=certificatesigningrequest-cleaner-controller,garbage-collector-controller,legacy-serviceaccount-token-cleaner-controller,namespace-controller,pod-garbage-collector-controller,podcertificaterequest-cleaner-controller,storage-version-migrator-controller,storageversion-garbage-collector-controller,ttl-after-finished-controller \
  '--cluster-name=a b' \
  --v=2 \
  --leader-elect \
  --leader-elect-resource-name=kube-controller-manager-garbage \
  --secure-port=10267
`
	if d := cmp.Diff(want, string(files[1].Text)); files[1].Path != "commands/kube-controller-manager-garbage.sh" || d != "" {
		t.Errorf("%s:\n%s", files[1].Path, d)
	}
	for _, line := range []string{"a 'b", `a \`, `"`} {
		if got, err := Words(line); err == nil {
			t.Errorf("%s: %q, want an error", line, got)
		}
	}
}

func TestNotes(t *testing.T) {
	p, err := planOf(t, kubeadm(t, "--allocate-node-cidrs=true", "--allocate-node-cidrs=false"), nil)
	require.NoError(t, err)
	notes := strings.Join(p.Notes, "\n")
	for _, want := range []string{
		"only group cluster keeps --service-account-private-key-file", "node-ipam-controller does nothing, as before: it needs --allocate-node-cidrs",
		"listed, as before, but never started: cloud-node-lifecycle-controller, node-route-controller, service-lb-controller",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "certificatesigningrequest-signing") {
		t.Errorf("the signer has its flags, and there is a note:\n%s", notes)
	}
}

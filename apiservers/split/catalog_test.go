package split

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/require"
)

const help = `Generic flags:

      --controllers strings   A list of controllers to enable.
                              All controllers: %s
                              Disabled-by-default controllers: %s (default [*])
      --other
`

func helpOf(all, off string) string {
	return strings.Replace(strings.Replace(help, "%s", all, 1), "%s", off, 1)
}

func TestCatalogOf(t *testing.T) {
	for version, want := range map[string]string{
		"v1.36.3": "", "1.36.0": "", "v1.36.7-eks-1": "",
		"v1.35.2": "--controllers-list", "v1.37.0": "the controllers of v1.37.0 are unknown, since only v1.36", "": "not a version", "latest": "not a version",
	} {
		_, err := CatalogOf(version)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", version, err, want)
		}
	}
}

func TestParseHelp(t *testing.T) {
	cat, err := ParseHelp("help.txt", helpOf("b, a, c", "c"))
	require.NoError(t, err)
	if d := cmp.Diff([]string{"a", "b", "c"}, cat.Names()); d != "" || cat.OffByDefault("a") || !cat.OffByDefault("c") {
		t.Errorf("%v: %s", cat, d)
	}
	for _, bad := range []string{"", "All controllers: a", helpOf("a", "b"), "kube-controller-manager v1.36.3"} {
		if cat, err := ParseHelp("help.txt", bad); err == nil || !strings.Contains(err.Error(), "help.txt") {
			t.Errorf("%q: %v, %v", bad, cat, err)
		}
	}
}

// A version whose names were today's aliases, one with a controller less and one with a controller more.
func TestOtherVersions(t *testing.T) {
	var old []string
	for _, k := range known {
		if len(k.Aliases) > 0 && k.Name != "job-controller" {
			old = append(old, k.Aliases[0])
		}
	}
	cat, err := ParseHelp("v1.25", helpOf(strings.Join(old, ", "), "bootstrapsigner, tokencleaner"))
	require.NoError(t, err)
	m, err := ParseManifest("kcm.yaml", []byte(kubeadm(t)))
	require.NoError(t, err)
	p, err := New(Input{Manifest: m}, nil, cat)
	require.NoError(t, err)
	if on := p.Groups[1].On; !slices.Contains(on, "garbagecollector") || !slices.Contains(on, "tokencleaner") {
		t.Errorf("group garbage: %q", on)
	}
	for _, g := range p.Groups {
		if got, want := g.Command.Value("service-account-private-key-file") != "", g.Name == "cluster"; got != want {
			t.Errorf("group %s has the key: %v", g.Name, got)
		}
	}
	if !strings.Contains(strings.Join(p.Notes, "\n"), "is known from v1.36.3, and this is v1.25") {
		t.Errorf("notes: %q", p.Notes)
	}

	later := append(catalog(t).Names(), "brand-new-controller")
	cat, err = ParseHelp("v1.99", helpOf(strings.Join(later, ", "), "bootstrap-signer-controller"))
	require.NoError(t, err)
	if _, err := New(Input{Manifest: m}, nil, cat); err == nil || err.Error() != "brand-new-controller is in no group" {
		t.Errorf("%v, want the controller that is new", err)
	}
}

func TestParseGroups(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "has no groups",
		"groups: []":                           "has no groups",
		"groups:\n- name: a\n  members: [b]\n": "members",
		"groups:\n- name: a\n  name: b\n":      "name",
		"groups:\n- name: a\n  controllers: {}\n": "controllers",
		"groups: a": "groups",
		"groups:\n- name: a\n  securePort: high\n": "securePort",
	} {
		if g, err := ParseGroups("groups.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "groups.yaml") {
			t.Errorf("%q: %v, %v, want %q", text, g, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	cat := catalog(t)
	for name, want := range map[string]string{
		"deploymnt-controller": "deployment-controller", "podgcc": "pod-garbage-collector-controller",
		"statefulset-contoller": "statefulset-controller", "service-account-controller": "serviceaccount-controller",
	} {
		if got := cat.nearest(name); got != want {
			t.Errorf("nearest to %s: %s, want %s", name, got, want)
		}
	}
}

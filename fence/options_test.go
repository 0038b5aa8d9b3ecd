package fence_test

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

func exampleOptions() fence.Options {
	return fence.Options{
		Rota:           types.NamespacedName{Namespace: "operators", Name: "website"},
		ServiceAccount: types.NamespacedName{Namespace: "operators", Name: "website-operator"},
		Resources:      []schema.GroupResource{websites, {Group: "apps", Resource: "deployments"}, {Resource: "services"}},
	}
}

func TestManifest(t *testing.T) {
	plain, configMapsToo := exampleOptions(), exampleOptions()
	configMapsToo.Resources = append(configMapsToo.Resources, configMaps)
	for name, o := range map[string]fence.Options{"website": plain, "configmaps": configMapsToo} {
		got, err := fence.Manifest(o)
		require.NoError(t, err)
		golden.File(t, filepath.Join("testdata", name+".yaml"), string(got))
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, exampleOptions().Validate())
	for want, change := range map[string]func(*fence.Options){
		"the name of the rota is empty":                          func(o *fence.Options) { o.Rota.Name = "" },
		"name of the rota \"a.b\"":                               func(o *fence.Options) { o.Rota.Name = "a.b" },
		"the namespace of the rota is empty":                     func(o *fence.Options) { o.Rota.Namespace = "" },
		"namespace of the ServiceAccount \"x'y\"":                func(o *fence.Options) { o.ServiceAccount.Namespace = "x'y" },
		"name of the ServiceAccount \"a'||true||'\"":             func(o *fence.Options) { o.ServiceAccount.Name = "a'||true||'" },
		"no resources":                                           func(o *fence.Options) { o.Resources = nil },
		"resource web.example.com/websites: named twice":         func(o *fence.Options) { o.Resources = append(o.Resources, websites) },
		"name each kind":                                         func(o *fence.Options) { o.Resources[0].Group = "*" },
		"the resource is empty":                                  func(o *fence.Options) { o.Resources[0].Resource = "" },
		"group of resource web_example/websites \"web_example\"": func(o *fence.Options) { o.Resources[0].Group = "web_example" },
	} {
		o := exampleOptions()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := fence.Manifest(o); err == nil {
			t.Errorf("%s: a manifest all the same", want)
		}
	}
}

func TestParseResource(t *testing.T) {
	for text, want := range map[string]schema.GroupResource{
		"web.example.com/websites": websites, "apps/deployments": {Group: "apps", Resource: "deployments"},
		"configmaps": configMaps, "/configmaps": configMaps,
	} {
		if got, err := fence.ParseResource(text); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                      "the resource is empty",
		"websites.example.com":  "such as example.com/websites",
		"apps/deployments/foo":  "leave /foo out",
		"apps/*":                "name each kind",
		"apps/Deployment":       "plural in lower case",
		"Web.example.com/sites": "group of resource",
		"apps/de_ployments":     "de_ployments",
	} {
		if got, err := fence.ParseResource(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func TestParseServiceAccount(t *testing.T) {
	if got, err := fence.ParseServiceAccount("operators/a.b"); err != nil || got.String() != "operators/a.b" {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{"operator": "want NAMESPACE/NAME", "/a": "is empty", "a/": "is empty", "a/b/c": `"b/c"`, "A/b": `"A"`} {
		if _, err := fence.ParseServiceAccount(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// Members know the fence's refusals by their beginning.
func TestRefusalsBeginAlike(t *testing.T) {
	policy, _, err := fence.Policy(exampleOptions())
	require.NoError(t, err)
	for _, v := range policy.Spec.Validations {
		if !strings.HasPrefix(v.Message, names.FenceRefusal) ||
			v.MessageExpression != "" && !strings.HasPrefix(v.MessageExpression, "'"+names.FenceRefusal) {
			t.Errorf("%q, %q", v.Message, v.MessageExpression)
		}
	}
}

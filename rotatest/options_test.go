package rotatest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/habits"
	"github.com/rota-dev/rota/test/require"
)

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// good are options that are accepted, for objects that the API server serves.
func good(cfg *rest.Config) Options {
	return Options{Config: cfg, Setup: func(*ctrlrt.Manager) error { return nil },
		Objects: []client.Object{configMap("default", "a")}}
}

func TestRefusedOptions(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"nothing", func(o *Options) { *o = Options{} }, "Options.Config is nil: pass the config of an API server"},
		{"no setup", func(o *Options) { o.Setup = nil }, "Options.Setup is nil: pass what adds"},
		{"no objects", func(o *Options) { o.Objects = nil }, "Options.Objects is empty, and there is no Change"},
		{"a nil object", func(o *Options) { o.Objects[0] = nil }, "Options.Objects[0] is nil"},
		{"a kind that the scheme lacks", func(o *Options) { o.Scheme = runtime.NewScheme() },
			"Options.Objects[0] is a *v1.ConfigMap, and the scheme does not know its kind"},
		{"two schemes", func(o *Options) { o.Scheme, o.Manager.Scheme = runtime.NewScheme(), runtime.NewScheme() },
			"leave one of them out"},
		{"an old object", func(o *Options) { o.Objects[0].SetResourceVersion("7") },
			"Options.Objects[0], ConfigMap default/a, comes from an API server"},
		{"a namespace", func(o *Options) { o.Objects[0] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}} },
			"Options.Objects[0] is Namespace a: leave it out"},
		{"no name", func(o *Options) { o.Objects[0].SetName("") }, "Options.Objects[0], a ConfigMap, has no name"},
		{"twice", func(o *Options) { o.Objects = append(o.Objects, configMap("default", "a")) },
			"Options.Objects[0] and [1] are both ConfigMap default/a"},
		{"an HTTP client", func(o *Options) { o.Manager.Client.HTTPClient = http.DefaultClient }, "HTTPClient"},
		{"solo", func(o *Options) { o.Rota.Solo = true }, "Options.Rota has Solo or Group"},
		{"a negative time", func(o *Options) { o.Quiet = -time.Second }, "Options.Quiet -1s: must not be negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := good(&rest.Config{Host: "https://127.0.0.1:1"})
			c.change(&o)
			if _, err := o.withDefaults(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := good(&rest.Config{}).withDefaults(); err != nil {
		t.Error(err)
	}
}

func TestNoAPIServer(t *testing.T) {
	o, err := good(&rest.Config{Host: "http://127.0.0.1:1"}).withDefaults()
	require.NoError(t, err)
	const want = "Options.Config: the API server at http://127.0.0.1:1 does not answer"
	if _, err := newKit(t.Context(), o, 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestNotServed(t *testing.T) {
	cfg := controlplane.For(t).Config()
	foreign := &unstructured.Unstructured{}
	foreign.SetAPIVersion("example.com/v1")
	foreign.SetKind("Foreign")
	foreign.SetName("a")
	for _, c := range []struct {
		obj  client.Object
		want string
	}{
		{foreign, "the API server does not serve example.com/v1 Foreign: install its CRD first"},
		{configMap("", "a"), "Options.Objects[0], ConfigMap a, has no namespace"},
		{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}, "has a namespace, and its kind has none"},
	} {
		o := good(cfg)
		o.Objects = []client.Object{c.obj}
		o, err := o.withDefaults()
		require.NoError(t, err)
		if _, err := newKit(t.Context(), o, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

// A Setup that is wrong is told at once.
func TestSetupFails(t *testing.T) {
	cfg := controlplane.For(t).Config()
	twice := func(mgr *ctrlrt.Manager) error {
		if err := habits.Operator(habits.Idle).Setup(mgr); err != nil {
			return err
		}
		return habits.Operator(habits.Idle).Setup(mgr)
	}
	o := good(cfg)
	o.Setup = twice
	o, err := o.withDefaults()
	require.NoError(t, err)
	defer alone(cfg.Host)()
	k, err := newKit(t.Context(), o, 1)
	require.NoError(t, err)
	defer func() { _ = k.close() }()
	const want = "Options.Setup: controller configmap: there is one of that name already"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := k.reference(ctx); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

package charts

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/test/require"
)

// TestApply: the API server takes everything that the chart renders, and refuses fields that a kind does not have. It
// does not serve the Prometheus operator's kinds.
func TestApply(t *testing.T) {
	w := newWorld(t)
	w.namespaces("operators", "blogs", "shops")
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		w.apply(rendered(t, strings.TrimSuffix(filepath.Base(file), ".values.yaml")), client.DryRunAll)
	}
	w.apply(rendered(t, "full"))
}

// TestPodSecurity: a namespace that enforces Pod Security's profile restricted admits the Pods, and refuses them without
// the chart's security context.
func TestPodSecurity(t *testing.T) {
	w := newWorld(t)
	patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	namespaces := w.typed.CoreV1().Namespaces()
	_, err := namespaces.Patch(t.Context(), w.namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	w.install("website")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: w.namespace}, Spec: w.deployment.Spec.Template.Spec}
	require.NoError(t, w.Create(t.Context(), pod.DeepCopy(), client.DryRunAll))
	pod.Spec.SecurityContext = nil
	if err := w.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("without a security context: %v", err)
	}
}

// TestOperator: with the permissions of the chart, and no others, replicas of the example operator work while one joins
// and one leaves. The API server never refuses anything. With Filter there is a fence, too, which knows the members by
// the tokens of their Pods.
func TestOperator(t *testing.T) {
	for _, name := range []string{"fence", "slotlabel-namespaces"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.namespaces("blogs", "shops")
			w.install(name)
			w.fence = name == "fence"
			w.works(name)
		})
	}
}

func (w *world) works(prefix string) {
	t := w.t
	t.Helper()
	prefix = strings.ToLower(prefix)
	const objects = 30
	site := func(i int) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		obj.SetAPIVersion("web.example.com/v1")
		obj.SetKind("Website")
		obj.SetNamespace([]string{"blogs", "shops"}[i%2])
		obj.SetName(fmt.Sprintf("%s-%d", prefix, i))
		_ = unstructured.SetNestedField(obj.Object, "Title", "spec", "title")
		_ = unstructured.SetNestedField(obj.Object, i%3 == 0, "spec", "protected")
		return obj
	}
	// wrong says which Website is not as its spec has it, with what it owns.
	wrong := func() string {
		for i := range objects {
			obj := site(i)
			key := client.ObjectKeyFromObject(obj)
			if err := w.Get(t.Context(), key, obj); err != nil {
				return err.Error()
			}
			seen, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
			if seen != obj.GetGeneration() {
				return fmt.Sprintf("%s is at generation %d, reconciled is %d", key, obj.GetGeneration(), seen)
			}
			var service corev1.Service
			var deployment appsv1.Deployment
			if err := w.Get(t.Context(), key, &service); err != nil {
				return err.Error()
			}
			if err := w.Get(t.Context(), key, &deployment); err != nil {
				return err.Error()
			}
		}
		return ""
	}
	change := func(content string) {
		t.Helper()
		for i := range objects {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"content":"`+content+`"}}`))
			require.NoError(t, w.Patch(t.Context(), site(i), patch))
		}
	}
	share := func(replicas ...*replica) func() string {
		return func() string {
			owners := w.owners()
			for _, r := range replicas {
				if owners[r.pod] == 0 {
					return fmt.Sprintf("%s owns no slots: %v", r.pod, owners)
				}
			}
			if len(owners) != len(replicas) {
				return fmt.Sprintf("want %d members: %v", len(replicas), owners)
			}
			return ""
		}
	}
	a, b := w.start(), w.start()
	for i := range objects {
		require.NoError(t, w.Create(t.Context(), site(i)))
	}
	w.eventually(2*time.Minute, share(a, b))
	w.eventually(2*time.Minute, wrong)
	c := w.start()
	w.eventually(2*time.Minute, share(a, b, c))
	w.fenced()
	change("three")
	w.eventually(2*time.Minute, wrong)
	a.leave()
	w.eventually(2*time.Minute, share(b, c))
	change("two")
	w.eventually(2*time.Minute, wrong)
	for i := range objects {
		require.NoError(t, w.Delete(t.Context(), site(i)))
	}
	w.eventually(2*time.Minute, func() string {
		for i := range objects {
			obj := site(i)
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%s is still there: %v", obj.GetName(), err)
			}
		}
		return ""
	})
	b.leave()
	c.leave()
	w.judge(a, b, c)
}

// fenced checks that the fence, if the release has one, refuses Pods that are not members.
func (w *world) fenced() {
	w.t.Helper()
	if !w.fence {
		return
	}
	err := fence.Verify(w.t.Context(), w.plane.Config(), fence.Options{
		Rota:           types.NamespacedName{Namespace: w.namespace, Name: "website"},
		ServiceAccount: types.NamespacedName{Namespace: w.namespace, Name: w.deployment.Spec.Template.Spec.ServiceAccountName},
		Resources:      append([]schema.GroupResource{websites.GroupResource()}, groups(owned)...),
	})
	if err != nil {
		w.t.Error(err)
	}
}

// judge reads the audit log: nothing was forbidden, and each replica has worked.
func (w *world) judge(replicas ...*replica) {
	w.t.Helper()
	worked := map[string]int{}
	for _, r := range w.requests() {
		if r.ResponseStatus.Code == http.StatusForbidden {
			w.t.Errorf("forbidden: %s %s/%s %s: %s", r.Verb, r.ObjectRef.Resource, r.ObjectRef.Subresource,
				r.ObjectRef.Name, r.ResponseStatus.Message)
		}
		pod, _, _ := strings.Cut(r.UserAgent, "/")
		reads := r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
		if ns := r.ObjectRef.Namespace; !reads && ns != "" && ns != w.namespace {
			worked[pod]++
		}
	}
	for _, r := range replicas {
		if worked[r.pod] == 0 {
			w.t.Errorf("%s has written nothing", r.pod)
		}
	}
}

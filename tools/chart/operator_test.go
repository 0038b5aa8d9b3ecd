package chart

import (
	"fmt"
	"maps"
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
	"github.com/rota-dev/rota/permission"
)

// TestApply: the API server takes everything that the chart renders. The Prometheus operator's kinds are left to
// TestMatrix, which parses them with the operator's types.
func TestApply(t *testing.T) {
	w, chart := newWorld(t), load(t)
	w.namespaces("operators", "blogs", "shops")
	seen, count := map[string]bool{}, map[string]int{}
	for _, c := range variants() {
		manifests, _, err := example(c.values()).text(chart)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range manifests {
			if seen[text] {
				continue
			}
			seen[text] = true
			objects := parse(t, []string{text})
			w.apply(t.Context(), objects, client.DryRunAll)
			count[objects[0].GetKind()]++
		}
	}
	t.Logf("%d different objects: %v", len(seen), count)
	w.apply(t.Context(), example(full()).objects(t)) // and not only as a rehearsal
}

// TestPodSecurity: a namespace that enforces Pod Security's profile restricted admits the Pods. It refuses them without
// the chart's security contexts, so it does look.
func TestPodSecurity(t *testing.T) {
	w := newWorld(t)
	patch := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	namespaces := w.typed.CoreV1().Namespaces()
	_, err := namespaces.Patch(t.Context(), w.namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.install(nil, nil)
	create := func(spec corev1.PodSpec) error {
		_, err := w.typed.CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	spec := w.deployment.Spec.Template.Spec
	if err := create(spec); err != nil {
		t.Error(err)
	}
	for name, weaken := range map[string]func(*corev1.PodSpec){
		"seccompProfile": func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil },
		"runAsNonRoot":   func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil },
		"capabilities":   func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
		"allowPrivilegeEscalation": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		},
	} {
		weak := spec.DeepCopy()
		weaken(weak)
		if err := create(*weak); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestOperator: with the permissions of the chart, and no others, replicas of the example operator work while one joins
// and one leaves. The API server never refuses anything. With Filter there is a fence, too, which knows the members by
// the tokens of their Pods.
func TestOperator(t *testing.T) {
	for name, v := range map[string]values{
		"Filter":        set(nil, "rota.fence.enabled", true),
		"SlotLabel":     set(nil, "rota.delivery", "SlotLabel"),
		"ShardSelector": set(nil, "rota.delivery", "ShardSelector"),
		"namespaces":    set(set(nil, "rota.delivery", "SlotLabel"), "rota.namespaces", []any{"blogs", "shops"}),
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "Filter" {
				t.Skip("takes half a minute: not under -short")
			}
			w := newWorld(t)
			w.namespaces("blogs", "shops")
			w.install(set(v, "rota.leaseDuration", "5s"), nil)
			_, w.fence = at(v, "rota.fence.enabled")
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
			if err := w.Patch(t.Context(), site(i), patch); err != nil {
				t.Fatal(err)
			}
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
		if err := w.Create(t.Context(), site(i)); err != nil {
			t.Fatal(err)
		}
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
		if err := w.Delete(t.Context(), site(i)); err != nil {
			t.Fatal(err)
		}
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
	account := types.NamespacedName{Namespace: w.namespace, Name: w.deployment.Spec.Template.Spec.ServiceAccountName}
	o := fence.Options{
		Rota: types.NamespacedName{Namespace: w.namespace, Name: "website"}, ServiceAccount: account,
		Resources: []schema.GroupResource{websites.GroupResource()},
	}
	for _, r := range owned {
		o.Resources = append(o.Resources, r.GroupResource())
	}
	state, err := fence.Look(w.t.Context(), w.plane.Config(), o.Rota)
	if err != nil {
		w.t.Fatal(err)
	}
	if !w.fence {
		if len(state.Resources) > 0 {
			w.t.Errorf("a fence that was not asked for: %s", state)
		}
		return
	}
	if err := fence.Verify(w.t.Context(), w.plane.Config(), o); err != nil {
		w.t.Error(err)
	}
}

// judge reads the audit log: nothing was forbidden, and each replica has worked.
func (w *world) judge(replicas ...*replica) {
	t := w.t
	t.Helper()
	worked, used, total := map[string]int{}, map[string]bool{}, 0
	for _, r := range w.requests() {
		total++
		if r.ResponseStatus.Code == 403 {
			t.Errorf("forbidden: %s %s/%s %s: %s", r.Verb, r.ObjectRef.Resource, r.ObjectRef.Subresource,
				r.ObjectRef.Name, r.ResponseStatus.Message)
		}
		pod, _, _ := strings.Cut(r.UserAgent, "/")
		reads := r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
		if ns := r.ObjectRef.Namespace; !reads && ns != "" && ns != w.namespace {
			worked[pod]++
		}
		if r.ObjectRef.Namespace == w.namespace {
			used[r.ObjectRef.APIGroup+"/"+r.ObjectRef.Resource+" "+r.Verb] = true
		}
	}
	for _, r := range replicas {
		if worked[r.pod] == 0 {
			t.Errorf("%s has written nothing", r.pod)
		}
	}
	var unused []string
	for _, need := range permission.Needs(w.namespace, permission.Rules("website")) {
		if name := need.Group + "/" + need.Resource + " " + need.Verb; !used[name] {
			unused = append(unused, name)
		}
	}
	t.Logf("%d requests, writes to objects by replica: %v; of the Role's permissions not used: %q", total,
		slicesOf(worked), unused)
}

func slicesOf(m map[string]int) (out []int) {
	for _, name := range sorted(m) {
		out = append(out, m[name])
	}
	return out
}

// without takes a permission from all roles.
func without(objects []*unstructured.Unstructured, need permission.Error) (taken int) {
	for _, obj := range objects {
		if obj.GetKind() != "Role" && obj.GetKind() != "ClusterRole" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(obj.Object, "rules")
		var left []any
		for _, r := range rules {
			rule := maps.Clone(r.(map[string]any))
			names, _ := rule["resourceNames"].([]any)
			if !contains(rule["apiGroups"], need.Group) || !contains(rule["resources"], need.Resource) ||
				!contains(rule["verbs"], need.Verb) || len(names) > 0 && !contains(names, need.Name) {
				left = append(left, rule)
				continue
			}
			taken++
			var verbs []any
			for _, verb := range rule["verbs"].([]any) {
				if verb != need.Verb {
					verbs = append(verbs, verb)
				}
			}
			if len(verbs) > 0 {
				rule["verbs"] = verbs
				left = append(left, rule)
			}
		}
		_ = unstructured.SetNestedSlice(obj.Object, left, "rules")
	}
	return taken
}

func contains(list any, value string) bool {
	all, _ := list.([]any)
	for _, v := range all {
		if v == value {
			return true
		}
	}
	return false
}

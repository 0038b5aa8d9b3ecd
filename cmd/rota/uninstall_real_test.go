package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/uninstall"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// everything lists all objects of a cluster, each with its labels and annotations.
func everything(t *testing.T, plane *controlplane.ControlPlane) (all []string) {
	t.Helper()
	lists, err := kubernetes.NewForConfigOrDie(plane.Config()).Discovery().ServerPreferredResources()
	require.NoError(t, err)
	cfg := plane.Config()
	cfg.WarningHandler = rest.NoWarnings{} // of deprecated kinds
	client := metadata.NewForConfigOrDie(cfg)
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, r := range list.APIResources {
			objects, err := client.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			for _, o := range objects.Items {
				all = append(all, fmt.Sprint(gv.WithResource(r.Name), " ", o.Namespace, "/", o.Name, " ", o.UID, o.Labels, o.Annotations))
			}
		}
	}
	slices.Sort(all)
	return all
}

// Uninstalling refuses while a member lives, and then leaves the cluster as it was before: labels, fence, Leases, those of
// a member that died, reports, table and events are gone, and nothing else is.
func TestUninstall(t *testing.T) {
	t.Parallel()
	plane := controlplane.New(t, controlplane.Options{})
	w := &written{plane: plane, client: kubernetes.NewForConfigOrDie(plane.Config()), namespace: "operators", name: "web"}
	for _, ns := range []string{w.namespace, "other"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		_, err := w.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	for i := range 40 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i), Labels: map[string]string{"app": "a"}}}
		_, err := maps.Create(t.Context(), cm, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.expect(t, "uninstall web", exitMissing, "it has no objects")
	before := everything(t, plane)

	label := sharding.HashLabel(slot.KeyName, schema.GroupKind{Kind: "ConfigMap"})
	id, end := w.startMember(t, "web-0", func(o *rota.Options) { o.Label, o.LabelNamespaces = true, []string{w.namespace} })
	labelled := func() int {
		list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: label})
		require.NoError(t, err)
		return len(list.Items)
	}
	require.Eventually(t, time.Minute, func() error {
		if n := labelled(); n < 41 { // the table, too
			return fmt.Errorf("%d objects have labels, want 41", n)
		}
		return nil
	})
	o := fence.Options{
		Rota:           types.NamespacedName{Namespace: w.namespace, Name: w.name},
		ServiceAccount: types.NamespacedName{Namespace: w.namespace, Name: "web"}, Resources: []schema.GroupResource{{Resource: "secrets"}},
	}
	require.NoError(t, fence.Apply(t.Context(), plane.Config(), o))
	w.expect(t, "pause", exitGood, "paused") // leaves an event
	w.expect(t, "uninstall web --yes", exitFindings, "nothing is removed: these members are alive: "+id)
	end()
	dead := w.table(t) // as if its Lease had outlived a member that was killed
	dead.UID, w.uid = "", dead.UID
	w.member(t, dead, "web-9-z")
	lease, err := w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), names.Lease(w.name, "web-9-z"), metav1.GetOptions{})
	require.NoError(t, err)
	lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To(int32(1)), ptr.To(metav1.NewMicroTime(time.Now().Add(-time.Minute)))
	_, err = w.client.CoordinationV1().Leases(w.namespace).Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)
	// Its Pod is still there, and its container may be waiting to be restarted. One that came later is another's.
	pods := w.client.CoreV1().Pods(w.namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-9"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	made, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	w.expect(t, "uninstall web --dry-run --keep-labels", exitGood, "would be removed")
	dead.Put(table.Member{ID: "web-9-z", Pod: "web-9", PodUID: string(made.UID), Weight: 1, MinFormat: 1, MaxFormat: table.Format})
	w.put(t, dead)
	w.expect(t, "uninstall web --yes --keep-labels", exitFindings, "nothing is removed: these Pods of members exist: web-9; scale")
	require.NoError(t, pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	// Another rota has the same labels.
	other := &written{plane: plane, client: w.client, namespace: "other", name: "web"}
	other.make(t, halves())
	w.expect(t, "uninstall web --dry-run", exitGood, "stays: label "+label, "rota other/web may use it", "validatingadmissionpolicybindings ", "leases operators/web.web-9-z.report")
	require.NoError(t, w.client.CoreV1().ConfigMaps(other.namespace).Delete(t.Context(), other.name,
		metav1.DeleteOptions{}))
	all := metav1.ListOptions{}
	require.NoError(t, w.client.CoordinationV1().Leases(other.namespace).DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, all))

	// An aggregated API server does not answer, and the rota held leader election's Lease.
	fixed := broken(t, plane)
	lease.ObjectMeta = metav1.ObjectMeta{Name: "web-operator", Namespace: w.namespace}
	lease.Spec.HolderIdentity = ptr.To("rota:operators/web")
	_, err = w.client.CoordinationV1().Leases(w.namespace).Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	w.expect(t, "uninstall web --dry-run", exitGood, "label "+label+" of 40 configmaps",
		"not searched: labels of the kinds of broken.example.com/v1: ", "stays: lease operators/web-operator: it is leader election's")
	require.NoError(t, w.client.CoordinationV1().Leases(w.namespace).Delete(t.Context(), lease.Name,
		metav1.DeleteOptions{}))
	fixed()
	w.expect(t, "uninstall web", exitUsage, "pass --yes")
	w.expect(t, "uninstall web --dry-run", exitGood, "would be removed", "label "+label+" of 40 configmaps", "stays: policy rota-fence-keeper")
	if labelled() != 41 || w.table(t) == nil {
		t.Fatal("a dry run, or one that nobody answered, removed something")
	}
	w.expect(t, "uninstall web --yes --keeper", exitGood, "Nothing of rota operators/web is left")
	w.expect(t, "uninstall web --keeper", exitMissing, "it has no objects")
	fixed = broken(t, plane)
	w.expect(t, "uninstall web --keeper", exitFindings, "not searched: labels of the kinds of broken.example.com/v1: ", "try again")
	fixed()
	if diff := cmp.Diff(before, everything(t, plane)); diff != "" {
		t.Errorf("-before the install +after the uninstall:\n%s", diff)
	}
}

// broken makes an APIService whose server does not exist, until fixed is called.
func broken(t *testing.T, plane *controlplane.ControlPlane) (fixed func()) {
	t.Helper()
	services := dynamic.NewForConfigOrDie(plane.Config()).Resource(schema.GroupVersionResource{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
	})
	const name = "v1.broken.example.com"
	_, err := services.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": "broken.example.com", "version": "v1", "groupPriorityMinimum": int64(10), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "missing"},
		},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	discovered := func() bool {
		_, err := kubernetes.NewForConfigOrDie(plane.Config()).Discovery().ServerPreferredResources()
		return err == nil
	}
	until := func(want bool) {
		require.NoError(t, await.Until(t.Context(), 100*time.Millisecond, time.Minute, func() string {
			if discovered() != want {
				return "discovery has not noticed " + name
			}
			return ""
		}))
	}
	until(false)
	return func() {
		require.NoError(t, services.Delete(t.Context(), name, metav1.DeleteOptions{}))
		until(true)
	}
}

// A ConfigMap of that name that is no table stays. A user who may not look for labels is told what to do.
func TestUninstallRefuses(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	_, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)
	w.expect(t, "uninstall web --yes --keep-labels", exitFindings, "this ConfigMap is not a rota's table")
	w.expect(t, "uninstall", exitUsage, "got 0 names")
	code, _, errOut := w.rota(t, "uninstall web --yes", w.user(t, "get", "list"))
	if code != exitForbidden || !strings.Contains(errOut, "validatingadmissionpolicybindings") {
		t.Errorf("without permission: exit code %d\n%s", code, errOut)
	}
}

// A table that this command cannot read stays: it may name Pods that have no Leases, and come back.
func TestUninstallOfANewerRelease(t *testing.T) {
	t.Parallel()
	w := writeRota(t, halves())
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	cm, err := maps.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	cm.Data["format"] = "99"
	_, err = maps.Update(t.Context(), cm, metav1.UpdateOptions{})
	require.NoError(t, err)
	err = w.client.CoordinationV1().Leases(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	require.NoError(t, err)
	w.expect(t, "uninstall web --yes --keep-labels", exitFindings, "a newer release wrote the table")
	if _, err := maps.Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("the table: %v", err)
	}
}

// What was found may have changed once somebody has answered: then nothing is removed, neither labels nor the fence. And
// a Pod whose member has not renewed for long, since its container crashes again and again, may come back.
func TestUninstallLooksAgain(t *testing.T) {
	t.Parallel()
	w := writeRota(t, halves())
	leases := w.client.CoordinationV1().Leases(w.namespace)
	list, err := leases.List(t.Context(), metav1.ListOptions{LabelSelector: names.LabelRota})
	require.NoError(t, err)
	renew := func(l *coordinationv1.Lease, at time.Time) {
		l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = ptr.To(int32(1)), ptr.To(metav1.NewMicroTime(at))
		_, err := leases.Update(t.Context(), l, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	for i := range list.Items {
		renew(&list.Items[i], time.Now().Add(-time.Hour))
	}
	finder, err := uninstall.NewFinder(w.plane.Config(), uninstall.Options{
		Rota: types.NamespacedName{Namespace: w.namespace, Name: w.name}, KeepLabels: true,
	})
	require.NoError(t, err)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "object", Labels: map[string]string{"some.label": "7"}}}
	_, err = w.client.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"configmaps " + w.namespace + "/web is new or has changed meanwhile", func() { w.put(t, dropped(w.table(t), "web-1-b")) }},
		{"leases " + w.namespace + "/web.web-2-c is new", func() {
			w.member(t, w.table(t), "web-2-c")
			l, err := leases.Get(t.Context(), names.Lease(w.name, "web-2-c"), metav1.GetOptions{})
			require.NoError(t, err)
			renew(l, time.Now().Add(-time.Hour)) // by its clock
		}},
		{"these Pods of members exist: web-0", func() {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
			_, err := w.client.CoreV1().Pods(w.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			require.NoError(t, err)
		}},
	} {
		found, err := finder.Find(t.Context())
		require.NoError(t, err)
		found.Labels = []uninstall.Labels{{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Label: "some.label", Objects: 1}}
		c.change()
		err = finder.Remove(t.Context(), found, func(string) {})
		if err == nil || !strings.Contains(err.Error(), "nothing is removed: ") || !strings.Contains(err.Error(), c.what) {
			t.Errorf("removed although %s: %v", c.what, err)
		}
		cm, err = w.client.CoreV1().ConfigMaps(w.namespace).Get(t.Context(), cm.Name, metav1.GetOptions{})
		if err != nil || cm.Labels["some.label"] == "" {
			t.Fatalf("%s: labels are gone: %v", c.what, err)
		}
	}
}

// dropped is a table without a member.
func dropped(tab *table.Table, id string) *table.Table {
	tab.Remove(id)
	tab.Seal(tab.Epoch + 1)
	return tab
}

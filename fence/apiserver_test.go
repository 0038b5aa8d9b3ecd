package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// writes are the ways in which a member changes a Website that exists.
var writes = []struct {
	name string
	do   func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured) error
}{
	{"create", func(ctx context.Context, c dynamic.ResourceInterface, _ *unstructured.Unstructured) error {
		_, err := c.Create(ctx, website("another"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}},
	{"update", func(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		_, err := c.Update(ctx, obj, metav1.UpdateOptions{})
		return err
	}},
	{"update of the status", func(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		_, err := c.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
		return err
	}},
	{"patch", func(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		_, err := c.Patch(ctx, obj.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		return err
	}},
	{"patch of the status", func(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		_, err := c.Patch(ctx, obj.GetName(), types.MergePatchType, []byte(`{"status":{"checksum":"c"}}`), metav1.PatchOptions{}, "status")
		return err
	}},
	{"apply", func(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		_, err := c.Apply(ctx, obj.GetName(), website(obj.GetName()), metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	}},
	{"delete of a collection", func(ctx context.Context, c dynamic.ResourceInterface, _ *unstructured.Unstructured) error {
		return c.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{})
	}},
	{"delete", func(ctx context.Context, c dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		return c.Delete(ctx, obj.GetName(), metav1.DeleteOptions{})
	}},
}

func website(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "web.example.com/v1", "kind": "Website", "metadata": map[string]any{"name": name}, "spec": map[string]any{"title": "t"},
	}}
}

func (s *site) websites(cfg *rest.Config) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(cfg).Resource(websites.WithVersion("v1")).Namespace(s.namespace)
}

// website makes a Website as an administrator.
func (s *site) website(name string) *unstructured.Unstructured {
	s.Helper()
	obj, err := s.websites(s.plane.Config()).Create(s.Context(), website(name), metav1.CreateOptions{})
	require.NoError(s, err)
	return obj
}

// R7: what a member may do, an expelled one may not, from one table to the next; and when it has joined again it may.
func TestR07ExpelledMembersWritesAreRefused(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	a, b := s.pod("web-0"), s.pod("web-1")
	asA, asB := s.as(a), s.as(b)
	s.members(a, b)
	s.install()
	for i, write := range writes {
		t.Run(write.name, func(t *testing.T) {
			obj := s.website(fmt.Sprintf("site-%d", i))
			s.members(b)
			var err error
			require.Eventually(t, 30*time.Second, func() error {
				if err = write.do(t.Context(), s.websites(asA), s.fresh(obj)); err == nil {
					if write.name == "delete" {
						obj = s.website(obj.GetName())
					}
					return fmt.Errorf("%s: not refused", write.name)
				}
				return nil
			})
			if !refused(err) || !strings.Contains(err.Error(), fmt.Sprintf("Pod web-0 (UID %s) is not a member in epoch %d: ", a.UID, s.table.Table.Epoch)) {
				t.Errorf("of an expelled member: %v, want a refusal that names the Pod", err)
			}
			if err := write.do(t.Context(), s.websites(asB), s.fresh(obj)); err != nil {
				t.Errorf("of a member: %v", err)
			}
			if write.name == "delete" {
				obj = s.website("site-again")
			}
			s.members(a, b)
			require.Eventually(t, 30*time.Second, func() error {
				err := write.do(t.Context(), s.websites(asA), s.fresh(obj))
				if err != nil && !refused(err) {
					t.Fatalf("of one that has joined again: %v", err)
				}
				return err
			})
		})
	}
}

// R7: the change of the table goes through one API server, the write through another.
func TestR07AnotherAPIServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, controlplane.New(t, controlplane.Options{APIServers: 2}))
	a, b := s.pod("web-0"), s.pod("web-1")
	s.members(a, b)
	s.install()
	for round := range 5 {
		members, want := []*corev1.Pod{b}, false
		if round%2 == 1 {
			members, want = []*corev1.Pod{a, b}, true
		}
		s.members(members...)
		for server := range 2 {
			client := kubernetes.NewForConfigOrDie(s.on(s.as(a), server)).CoreV1().ConfigMaps(s.namespace)
			require.Eventually(t, 30*time.Second, func() error {
				_, err := client.Create(t.Context(), configMap("x"), dryRun)
				if (err == nil) != want || err != nil && !refused(err) {
					return errors.Join(fmt.Errorf("round %d, API server %d: admitted %v, want %v", round, server, err == nil, want), err)
				}
				return nil
			})
		}
	}
}

// fresh is the object as it is now, or as it was where it is gone.
func (s *site) fresh(obj *unstructured.Unstructured) *unstructured.Unstructured {
	now, err := s.websites(s.plane.Config()).Get(s.Context(), obj.GetName(), metav1.GetOptions{})
	if err != nil {
		return obj
	}
	return now
}

// A token without a Pod is refused, with what to do; reads, other users, other kinds and the rota's own objects are not
// concerned.
func TestWhomTheFenceConcerns(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	a, stranger := s.pod("web-0"), s.pod("job")
	s.members(a)
	s.install()
	obj := s.website("site")
	nobody, other := s.as(nil), s.as(stranger)

	_, err := s.websites(nobody).Update(t.Context(), obj, metav1.UpdateOptions{})
	for _, want := range []string{
		"this token names no Pod", "Use the token that the kubelet mounts",
		"kubectl annotate configmap -n " + s.namespace + " website rota.dev/fence=off",
	} {
		if !refused(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("a token without a Pod: %v, want a refusal with %q", err, want)
		}
	}
	if _, err := s.websites(other).Update(t.Context(), obj, metav1.UpdateOptions{}); !refused(err) {
		t.Errorf("another Pod of the ServiceAccount: %v, want a refusal", err)
	}
	asOperator := rest.CopyConfig(s.plane.Config())
	asOperator.Impersonate.UserName = "system:serviceaccount:" + s.namespace + ":" + account
	if _, err := s.websites(asOperator).Update(t.Context(), obj, metav1.UpdateOptions{}); !refused(err) {
		t.Errorf("an impersonator: %v, want a refusal", err)
	}
	if _, err := s.websites(nobody).Get(t.Context(), "site", metav1.GetOptions{}); err != nil {
		t.Errorf("a read: %v", err)
	}
	if _, err := s.websites(s.plane.Config()).Update(t.Context(), obj, metav1.UpdateOptions{}); err != nil {
		t.Errorf("another user: %v", err)
	}
	core := kubernetes.NewForConfigOrDie(other).CoreV1()
	if _, err := core.Secrets(s.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("another kind: %v", err)
	}
	// ConfigMaps are fenced, but the table is one, and who joins is not in it yet.
	table, err := core.ConfigMaps(s.namespace).Get(t.Context(), rotaName, metav1.GetOptions{})
	require.NoError(t, err)
	if _, err := core.ConfigMaps(s.namespace).Update(t.Context(), table, metav1.UpdateOptions{}); err != nil {
		t.Errorf("the table: %v", err)
	}
	if _, err := core.ConfigMaps(s.namespace).Create(t.Context(), configMap(rotaName+".web-0"), metav1.CreateOptions{}); err != nil {
		t.Errorf("an object of the rota: %v", err)
	}
	elsewhere := controlplane.Namespace(t)
	for namespace, names := range map[string][]string{s.namespace: {"other", "websites"}, elsewhere: {rotaName, rotaName + ".web-0"}} {
		for _, name := range names {
			if _, err := core.ConfigMaps(namespace).Create(t.Context(), configMap(name), metav1.CreateOptions{}); !refused(err) {
				t.Errorf("ConfigMap %s/%s: %v, want a refusal", namespace, name, err)
			}
		}
	}
	generated := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "generated-"}}
	if _, err := core.ConfigMaps(s.namespace).Create(t.Context(), generated, metav1.CreateOptions{}); !refused(err) {
		t.Errorf("a generated name: %v, want a refusal", err)
	}
	if _, err := kubernetes.NewForConfigOrDie(s.as(a)).CoreV1().ConfigMaps(s.namespace).Create(t.Context(), generated, metav1.CreateOptions{}); err != nil {
		t.Errorf("a generated name, of a member: %v", err)
	}
}

// The garbage collector deletes objects of a fenced kind.
func TestGarbageCollectionGoesOn(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	s.members(s.pod("web-0"))
	s.install()
	maps := s.admin.CoreV1().ConfigMaps(s.namespace)
	owner, err := maps.Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	require.NoError(t, err)
	child := configMap("child")
	child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	_, err = maps.Create(t.Context(), child, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, maps.Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	require.Eventually(t, 30*time.Second, func() error {
		if _, err := maps.Get(t.Context(), "child", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the child is still there"), err)
		}
		return nil
	})
}

package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// R16: a missing table fences nobody, and above all not the other users of the kinds.
func TestR16TableMissing(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	a := s.pod("web-0")
	s.members(a)
	s.install()
	obj := s.website("site")
	require.NoError(t, s.admin.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), rotaName, metav1.DeleteOptions{}))
	nobody := s.websites(s.as(nil))
	require.Eventually(t, 30*time.Second, func() error {
		_, err := s.websites(s.plane.Config()).Update(t.Context(), s.fresh(obj), metav1.UpdateOptions{})
		if err != nil {
			t.Fatalf("another user: %v", err)
		}
		_, err = nobody.Update(t.Context(), s.fresh(obj), metav1.UpdateOptions{})
		return err
	})
	s.table.UID = ""
	s.members(a)
	s.enforced()
}

// A fence that is removed and put back goes by the table as it is then, since the keeper stays. Without it the API server
// would go by the table as it was: if it does not any more, the keeper is not needed.
func TestFencePutBack(t *testing.T) {
	for _, keeper := range []bool{true, false} {
		t.Run(fmt.Sprintf("keeper=%t", keeper), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, controlplane.New(t, controlplane.Options{}))
			a, b := s.pod("web-0"), s.pod("web-1")
			s.members(a)
			s.install()
			if !keeper {
				err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), fence.KeeperName, metav1.DeleteOptions{})
				require.NoError(t, err)
			}
			s.remove()
			s.members(b)
			s.install()
			try := func(pod *corev1.Pod) bool {
				_, err := kubernetes.NewForConfigOrDie(s.as(pod)).CoreV1().ConfigMaps(s.namespace).Create(t.Context(), configMap("x"), dryRun)
				return err == nil
			}
			if keeper {
				require.Eventually(t, 30*time.Second, func() error {
					if try(a) || !try(b) {
						return errors.New("the fence goes by the table of the time when it was removed")
					}
					return nil
				})
			} else if !try(a) || try(b) {
				t.Error("the fence goes by the present table without its keeper: kubernetes/kubernetes#130887 is mended here")
			}
		})
	}
}

// Why the binding allows what has no table: the API server looks for params before it looks who asks.
func TestR16DenyWouldHitEverybody(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	s.members()
	s.install()
	patch := []byte(`{"spec":{"paramRef":{"parameterNotFoundAction":"Deny"}}}`)
	if _, err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Patch(t.Context(), s.options.ObjectName(),
		types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // other tests write to these kinds
		_ = s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(context.Background(), s.options.ObjectName(), metav1.DeleteOptions{})
		require.Eventually(t, 30*time.Second, func() error {
			_, err := s.admin.CoreV1().ConfigMaps(s.namespace).Create(context.Background(), configMap("other"), dryRun)
			return err
		})
	})
	require.NoError(t, s.admin.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), rotaName, metav1.DeleteOptions{}))
	require.Eventually(t, 30*time.Second, func() error {
		_, err := s.admin.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), configMap("other"), dryRun)
		if err == nil || !strings.Contains(err.Error(), "no params found") {
			return errors.Join(errors.New("another user is not refused; if that stays so, Deny is the better action"), err)
		}
		return nil
	})
}

// The annotation takes the fence down at once, and stays when members change the table.
func TestBreakTheGlass(t *testing.T) {
	s := newSite(t, controlplane.For(t))
	a := s.pod("web-0")
	s.members(a)
	s.looks("none")
	s.install()
	s.looks("refuses writes to web.example.com/websites")
	obj, nobody := s.website("site"), s.websites(s.as(nil))
	annotate := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, fence.Annotation, value)
		cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), rotaName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
		s.table.Version = cm.ResourceVersion
	}
	annotate(`"off"`)
	s.looks("taken down by the annotation")
	require.Eventually(t, 30*time.Second, func() error {
		_, err := nobody.Update(t.Context(), s.fresh(obj), metav1.UpdateOptions{})
		return err
	})
	if _, err := s.store.ReadTable(t.Context()); err != nil { // as a member would, which follows the table
		t.Fatal(err)
	}
	s.members(a, s.pod("web-1"))
	cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), rotaName, metav1.GetOptions{})
	if err != nil || cm.Annotations[fence.Annotation] != fence.Off {
		t.Fatalf("after a change of the table: %v, %v; want the annotation", cm.Annotations, err)
	}
	if _, err := nobody.Update(t.Context(), s.fresh(obj), metav1.UpdateOptions{}); err != nil {
		t.Errorf("with the annotation: %v", err)
	}
	annotate("null")
	s.enforced()
	// Where nothing else helps, the binding is deleted.
	name := s.options.ObjectName()
	bindings := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	require.NoError(t, bindings.Delete(t.Context(), name, metav1.DeleteOptions{}))
	s.looks("not bound so that it refuses")
	require.Eventually(t, 30*time.Second, func() error {
		_, err := nobody.Update(t.Context(), s.fresh(obj), metav1.UpdateOptions{})
		return err
	})
}

// looks fails unless Look says so.
func (s *site) looks(want string) {
	s.Helper()
	state, err := fence.Look(s.Context(), s.plane.Config(), s.options.Rota)
	if err != nil || !strings.Contains(state.String(), want) {
		s.Errorf("the fence %q, %v; want %q", state, err, want)
	}
}

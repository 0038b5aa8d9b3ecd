package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/examples/checksum/controller"
	"github.com/rota-dev/rota/examples/internal/replica"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { replica.Main(m, controlplane.Options{}, main) }

// secrets are what the replicas work on.
type secrets struct {
	client    kubernetes.Interface
	namespace string
	data      map[string]string // by name
}

// write creates or updates all of them.
func (s *secrets) write(t *testing.T, data string) {
	t.Helper()
	for name := range s.data {
		secret := applycorev1.Secret(name, s.namespace).WithData(map[string][]byte{"password": []byte(data)}).
			WithAnnotations(map[string]string{controller.Annotation: "true"})
		_, err := s.client.CoreV1().Secrets(s.namespace).Apply(t.Context(), secret, metav1.ApplyOptions{FieldManager: "test"})
		require.NoError(t, err)
		s.data[name] = data
	}
}

func (s *secrets) delete(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, s.client.CoreV1().Secrets(s.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		delete(s.data, name)
	}
}

// published waits until each Secret has its checksum, and no other ConfigMap of a Secret is left.
func (s *secrets) published(t *testing.T) {
	t.Helper()
	want := map[string]string{}
	for name, data := range s.data {
		want[name+controller.Suffix] = controller.Checksum(map[string][]byte{"password": []byte(data)})
	}
	err := await.Until(t.Context(), 50*time.Millisecond, time.Minute, func() string {
		got := map[string]string{}
		for _, cm := range s.configMaps(t) {
			got[cm.Name] = cm.Data[controller.DataKey]
		}
		return cmp.Diff(want, got)
	})
	require.NoError(t, err)
}

// configMaps returns the ConfigMaps with checksums.
func (s *secrets) configMaps(t *testing.T) []corev1.ConfigMap {
	t.Helper()
	list, err := s.client.CoreV1().ConfigMaps(s.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return slices.DeleteFunc(list.Items, func(cm corev1.ConfigMap) bool { return !strings.HasSuffix(cm.Name, controller.Suffix) })
}

// writers counts the checksums that each replica wrote last. The API server notes it by the user agent's first part.
func (s *secrets) writers(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, cm := range s.configMaps(t) {
		last := slices.MaxFunc(cm.ManagedFields, func(a, b metav1.ManagedFieldsEntry) int { return a.Time.Compare(b.Time.Time) })
		out[last.Manager]++
	}
	return out
}

// Two replicas share the Secrets, and one that is left alone takes over, deletions included.
func TestTwoReplicasShareSecrets(t *testing.T) {
	controlplane.Essential(t)
	plane := controlplane.For(t)
	namespace := controlplane.Namespace(t)
	s := &secrets{client: kubernetes.NewForConfigOrDie(plane.Config()), namespace: namespace, data: map[string]string{}}
	for i := range 60 {
		s.data[fmt.Sprintf("secret-%02d", i)] = ""
	}
	s.write(t, "1")
	a := replica.Start(t, namespace, "replica-a")
	s.published(t)

	replica.Start(t, namespace, "replica-b")
	for i := 0; s.writers(t)["replica-b"] < 20; i++ { // of about 30
		s.write(t, fmt.Sprintf("2.%d", i))
		s.published(t)
	}
	s.delete(t, "secret-00", "secret-01", "secret-02", "secret-03", "secret-04", "secret-05")
	s.published(t)

	if err := a.Leave(); err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
	s.write(t, "3")
	s.delete(t, "secret-10", "secret-11", "secret-12")
	s.published(t)
	if n := s.writers(t)["replica-b"]; n != len(s.data) {
		t.Errorf("replica-b wrote %d of %d checksums after replica-a had left", n, len(s.data))
	}
}

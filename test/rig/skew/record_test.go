package skew

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/demo"
)

// write writes what a rota has in the API server, but for metadata that says nothing of it.
func (s *story) write(ctx context.Context, dir string) error {
	cm, err := s.kube.CoreV1().ConfigMaps(demo.Namespace).Get(ctx, demo.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	leases, err := s.kube.CoordinationV1().Leases(demo.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	objects := map[string]any{"table": cm}
	bare := func(m *metav1.ObjectMeta) { m.ManagedFields, m.OwnerReferences = nil, nil }
	bare(&cm.ObjectMeta)
	for i := range leases.Items {
		bare(&leases.Items[i].ObjectMeta)
		objects[leases.Items[i].Name] = &leases.Items[i]
	}
	errs := []error{os.MkdirAll(dir, 0o750)}
	for name, o := range objects {
		text, err := yaml.Marshal(o)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, name+".yaml"), text, 0o600))
	}
	return errors.Join(errs...)
}

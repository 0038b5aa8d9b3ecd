package fence

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// FieldManager owns the fields that Apply writes.
const FieldManager = "rota-fence"

// Apply applies the keeper, the policy and its binding, using server-side apply. Fields owned by another manager are a
// conflict, which is an error. The fence takes effect in each API server about a second later.
//
// Apply needs permission to get, create and patch both kinds, and to get ConfigMaps in all namespaces: the API server
// lets users create only policies whose params they may read.
func Apply(ctx context.Context, cfg *rest.Config, o Options) error {
	objects, err := objects(o)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("fence of rota %s: %w", o.Rota, err)
	}
	gv := admissionregistrationv1.SchemeGroupVersion
	resources := map[string]schema.GroupVersionResource{
		"ValidatingAdmissionPolicy":        gv.WithResource("validatingadmissionpolicies"),
		"ValidatingAdmissionPolicyBinding": gv.WithResource("validatingadmissionpolicybindings"),
	}
	options := metav1.ApplyOptions{FieldManager: FieldManager}
	for _, object := range objects {
		kind := object.GetKind()
		_, err := client.Resource(resources[kind]).Apply(ctx, object.GetName(), object, options)
		switch {
		case apierrors.IsConflict(err):
			err = errors.Join(err, errors.New(
				"another field manager owns it: give its owner what this command prints, or delete the object first"))
			fallthrough
		case err != nil:
			return fmt.Errorf("fence of rota %s: apply %s %s: %w", o.Rota, kind, object.GetName(), err)
		}
	}
	return nil
}

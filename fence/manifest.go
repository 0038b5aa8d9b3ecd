package fence

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Manifest returns the fence as YAML, for `kubectl apply -f` or a repository of manifests: the keeper, which all fences
// share, the policy and its binding.
func Manifest(o Options) ([]byte, error) {
	objects, err := objects(o)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for i, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("fence of rota %s: %w", o.Rota, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		if object.GetName() == KeeperName {
			out.WriteString("# All fences of the cluster share this object. Leave it when you remove this fence.\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// objects returns the objects that Apply applies, in order. It leaves out fields that a fence does not set, since Apply
// takes ownership of every field it sends.
func objects(o Options) ([]*unstructured.Unstructured, error) {
	policy, binding, err := Policy(o)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	keeper, keeperBinding := Keeper()
	for _, object := range []runtime.Object{keeper, keeperBinding, policy, binding} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("fence of rota %s: %w", o.Rota, err)
		}
		delete(fields, "status")
		unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
		out = append(out, &unstructured.Unstructured{Object: fields})
	}
	return out, nil
}

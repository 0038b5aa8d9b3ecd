package fence

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options select whose writes, and to which kinds, are fenced. All fields are required.
type Options struct {
	// Rota is the namespace and name of the rota, and of its ConfigMap.
	Rota types.NamespacedName
	// ServiceAccount is the ServiceAccount of the rota's members. Nothing else should use it, because the fence refuses
	// writes of other Pods that do.
	ServiceAccount types.NamespacedName
	// Resources are the kinds that members write: sharded kinds and kinds of owned objects. Subresources are fenced with
	// their kind.
	Resources []schema.GroupResource
}

// Validate returns all errors in the options, not only the first.
func (o Options) Validate() error {
	errs := []error{
		label("name of the rota", o.Rota.Name),
		label("namespace of the rota", o.Rota.Namespace),
		label("namespace of the ServiceAccount", o.ServiceAccount.Namespace),
		check("name of the ServiceAccount", o.ServiceAccount.Name, validation.IsDNS1123Subdomain),
	}
	if len(o.Resources) == 0 {
		errs = append(errs, errors.New(
			"no resources: name the kinds that are to be fenced, such as web.example.com/websites"))
	}
	for i, r := range o.Resources {
		errs = append(errs, validResource(r))
		if slices.Contains(o.Resources[:i], r) {
			errs = append(errs, fmt.Errorf("resource %s: named twice", resourceText(r)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fence of rota %s: %w", o.Rota, err)
	}
	return nil
}

// ObjectName returns the name of both the policy and its binding. It is unique, since namespaces and rota names contain
// no dots.
func (o Options) ObjectName() string {
	return "rota-fence." + o.Rota.Namespace + "." + o.Rota.Name
}

// ParseResource parses GROUP/RESOURCE, such as "apps/deployments". For the core group it accepts RESOURCE or /RESOURCE,
// such as "configmaps".
func ParseResource(text string) (schema.GroupResource, error) {
	group, resource, ok := strings.Cut(text, "/")
	if !ok {
		group, resource = "", text
		if head, tail, dotted := strings.Cut(text, "."); dotted {
			return schema.GroupResource{}, fmt.Errorf("resource %q: want GROUP/RESOURCE, such as %s/%s", text, tail, head)
		}
	}
	r := schema.GroupResource{Group: group, Resource: resource}
	return r, validResource(r)
}

// ParseServiceAccount parses NAMESPACE/NAME.
func ParseServiceAccount(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		return types.NamespacedName{}, fmt.Errorf(
			"service account %q: want NAMESPACE/NAME, such as operators/website-operator", text)
	}
	sa := types.NamespacedName{Namespace: namespace, Name: name}
	return sa, errors.Join(
		label("namespace of the ServiceAccount", namespace),
		check("name of the ServiceAccount", name, validation.IsDNS1123Subdomain))
}

func validResource(r schema.GroupResource) error {
	text := resourceText(r)
	_, sub, isSub := strings.Cut(r.Resource, "/")
	switch {
	case isSub:
		return fmt.Errorf("resource %q: subresources are fenced with their kind; leave /%s out", text, sub)
	case strings.Contains(text, "*"):
		return fmt.Errorf("resource %q: name each kind; "+
			"a fence around everything would stop what members do before they have joined", text)
	case r.Resource != strings.ToLower(r.Resource):
		return fmt.Errorf("resource %q: want the plural in lower case, "+
			"as `kubectl api-resources` prints it, such as apps/deployments", text)
	}
	if r.Group != "" {
		if err := check("group of resource "+text, r.Group, validation.IsDNS1123Subdomain); err != nil {
			return err
		}
	}
	return check("resource", r.Resource, validation.IsDNS1035Label)
}

// resourceText is the inverse of ParseResource.
func resourceText(r schema.GroupResource) string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Group + "/" + r.Resource
}

func label(what, value string) error { return check(what, value, validation.IsDNS1123Label) }

func check(what, value string, valid func(string) []string) error {
	if value == "" {
		return fmt.Errorf("the %s is empty", what)
	}
	if reasons := valid(value); len(reasons) > 0 {
		return fmt.Errorf("%s %q: %s", what, value, strings.Join(reasons, "; "))
	}
	return nil
}

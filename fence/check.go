package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// Check looks for problems in a cluster that would keep the fence from working. It changes nothing.
//
// The error lists every reason not to apply the fence:
//   - kinds that the API server does not serve,
//   - a ConfigMap with something other than a table in it,
//   - members that do not report their POD_UID: their writes would be refused.
//
// Warnings are about things that may be intended.
func Check(ctx context.Context, cfg *rest.Config, o Options) (warnings []string, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("fence of rota %s: %w", o.Rota, err)
	}
	c := checker{Options: o, client: client}
	c.serviceAccount(ctx)
	err = errors.Join(c.kinds(), c.table(ctx))
	if err != nil {
		err = fmt.Errorf("fence of rota %s: %w", o.Rota, err)
	}
	return c.warnings, err
}

type checker struct {
	Options
	client   kubernetes.Interface
	warnings []string
}

func (c *checker) warn(format string, args ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}

// kinds returns an error if the API server does not serve some of the resources, or policies.
func (c *checker) kinds() error {
	_, lists, err := c.client.Discovery().ServerGroupsAndResources()
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		return fmt.Errorf("ask the API server for its kinds: %w", err)
	}
	served := map[schema.GroupResource]bool{}
	var names []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // not a valid option
		}
		for _, r := range list.APIResources {
			resource := schema.GroupResource{Group: gv.Group, Resource: r.Name}
			if !served[resource] && !strings.Contains(r.Name, "/") {
				names = append(names, resourceText(resource))
			}
			served[resource] = true
		}
	}
	var errs []error
	if !served[admissionregistrationv1.Resource("validatingadmissionpolicies")] {
		errs = append(errs, errors.New(
			"the API server does not serve ValidatingAdmissionPolicy: that takes Kubernetes 1.30 or newer"))
	}
	for _, r := range c.Resources {
		switch {
		case served[r]:
		case slices.ContainsFunc(groups(failed), func(group string) bool { return group == r.Group }):
			c.warn("cannot find out whether there is a resource %s: the server of its group does not answer", resourceText(r))
		default:
			errs = append(errs, fmt.Errorf("the API server serves no resource %s%s", resourceText(r), similar(r, names)))
		}
	}
	return errors.Join(errs...)
}

func groups(failed map[schema.GroupVersion]error) []string {
	out := make([]string, 0, len(failed))
	for gv := range failed {
		out = append(out, gv.Group)
	}
	return out
}

// similar suggests at most ten resources that may have been meant: resources of the same name in other groups, and
// resources of the same group.
func similar(r schema.GroupResource, names []string) string {
	var out []string
	for _, name := range names {
		group, resource, ok := strings.Cut(name, "/")
		if !ok {
			group, resource = "", name
		}
		if resource == r.Resource || resource == r.Resource+"s" || group == r.Group && group != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		return ""
	}
	return "; it has " + strings.Join(out[:min(len(out), 10)], ", ")
}

func (c *checker) serviceAccount(ctx context.Context) {
	accounts := c.client.CoreV1().ServiceAccounts(c.ServiceAccount.Namespace)
	_, err := accounts.Get(ctx, c.ServiceAccount.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.warn("there is no ServiceAccount %s (yet)", c.ServiceAccount)
	case err != nil:
		c.warn("cannot find out whether there is a ServiceAccount %s: %v", c.ServiceAccount, err)
	}
}

// table looks for members whose writes the fence would refuse, and for members to which it does not apply.
func (c *checker) table(ctx context.Context) error {
	cm, err := c.client.CoreV1().ConfigMaps(c.Rota.Namespace).Get(ctx, c.Rota.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.warn("there is no ConfigMap %s yet: the fence refuses nothing until the first member has made the table", c.Rota)
		return nil
	case err != nil:
		return fmt.Errorf("read the table: %w", err)
	}
	t, err := table.Decode(cm.Data)
	if err != nil {
		return fmt.Errorf("the ConfigMap: %w", err)
	}
	var nameless []string
	for _, m := range t.Members {
		if m.PodUID == "" {
			nameless = append(nameless, m.ID)
		}
	}
	if len(nameless) > 0 {
		return fmt.Errorf("these members do not report the UID of their Pod, so that all their writes would be refused: %s. "+
			"Set POD_UID through the downward API (fieldPath: metadata.uid), roll that out, and try again",
			strings.Join(nameless, ", "))
	}
	if cm.Annotations[Annotation] == Off {
		c.warn("the fence is off: the ConfigMap has the annotation %s=%s", Annotation, Off)
	}
	c.accounts(ctx, t)
	return nil
}

// accounts warns about members that use another ServiceAccount.
func (c *checker) accounts(ctx context.Context, t *table.Table) {
	pods, err := c.client.CoreV1().Pods(c.Rota.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		c.warn("cannot find out whether the members use ServiceAccount %s: %v", c.ServiceAccount, err)
		return
	}
	for _, m := range t.Members {
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return string(p.UID) == m.PodUID })
		if i < 0 {
			c.warn("member %s: there is no Pod with UID %s in namespace %s", m.ID, m.PodUID, c.Rota.Namespace)
			continue
		}
		sa := types.NamespacedName{Namespace: c.Rota.Namespace, Name: pods.Items[i].Spec.ServiceAccountName}
		if sa != c.ServiceAccount {
			c.warn("member %s uses ServiceAccount %s, not %s: its writes are not fenced", m.ID, sa, c.ServiceAccount)
		}
	}
}

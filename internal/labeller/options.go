package labeller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/slot"
)

// Permit asks whether a batch of patches may be sent now. If ok is true, batch is a context derived from ctx that ends
// when the permission is withdrawn, and leave must be called when the batch is over. If not, the labeller drops its
// work and starts with a new list when it is permitted again.
//
// Permit is called before each batch, and at least every 250 ms to check the permission. It is called concurrently and
// must not block. A batch takes at most about 250 ms, or 5 s if the API server does not answer, so waiting for leave
// takes no longer.
type Permit func(ctx context.Context) (batch context.Context, leave func(), ok bool)

// Options are the options of New. Resources and Label are required.
type Options struct {
	// Resources are the resources to label. They may be cluster-scoped.
	Resources []schema.GroupVersionResource
	// Namespaces limits the labeller to these namespaces. Default: all. Leave it empty for cluster-scoped resources.
	Namespaces []string
	// Key selects what is hashed, KeyName or KeyNamespace. Default KeyName. All labellers of a resource must use the same
	// key. It is ignored if Value is set.
	Key slot.Key
	// Label is the label to write: for objects sharded by their own Key, sharding.HashLabel of key and kind.
	Label string
	// Value returns the label's value for an object, given its metadata. If it returns false, the object needs no label
	// and its label is left alone. It is called concurrently and must not change the object. Default: the hash of Key.
	Value func(obj metav1.Object) (value string, ok bool)
	// Permit decides when to work. Default: always. It does not affect Fix.
	Permit Permit
	// Grace is how long an object from the watch may wait for its author to label it in a separate write, which saves a
	// patch. Default: none.
	Grace time.Duration
	// QPS and Burst limit the patches: the rate in objects per second, and the burst in objects. Default 200 and half of
	// QPS.
	QPS   float32
	Burst int
	// Concurrency is the largest number of patches in flight. Default 16.
	Concurrency int
	// ScanPeriod is the time from the end of a scan to the start of the next. Default 10 minutes. If negative, there are
	// no scans.
	ScanPeriod time.Duration
	// ScanDelay is the time from the end of the first list to the first scan. Default: none. If the labeling often moves
	// between members, a delay avoids a scan by each of them.
	ScanDelay time.Duration
	// ScanRate limits a scan, in objects per second: the API server has to send the metadata of each. Default 5000.
	ScanRate float32
	// NotServed is called when the API server no longer serves a resource, or does not serve it yet. It may have removed a
	// version while it serves another one. The labeller keeps trying. NotServed is called concurrently, possibly several
	// times for one event, and must not block. Optional.
	NotServed func(schema.GroupVersionResource)
	// Report is called with errors after which the labeller tries again. It is called concurrently, at most a few times a
	// second, and must not block. Optional.
	Report func(error)
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Resources) == 0 {
		return o, errors.New("labeller: Options.Resources is empty: name what is to be labelled")
	}
	for _, r := range o.Resources {
		if r.Version == "" || r.Resource == "" {
			return o, fmt.Errorf("labeller: resource %q: give its version and its plural, such as v1 and configmaps", r)
		}
	}
	if o.Key == slot.KeyUnknown {
		o.Key = slot.KeyName
	}
	if o.Value == nil && o.Key != slot.KeyName && o.Key != slot.KeyNamespace {
		return o, fmt.Errorf("labeller: key %v: the label serves the keys Name and Namespace only; deliver by another way "+
			"or choose one of these", o.Key)
	}
	if o.Label == "" {
		return o, errors.New("labeller: Options.Label is empty: name the label to write, as sharding.HashLabel does")
	}
	if problems := validation.IsQualifiedName(o.Label); len(problems) > 0 {
		return o, fmt.Errorf("labeller: Options.Label %q is not the name of a label: %s", o.Label,
			strings.Join(problems, "; "))
	}
	if o.Value == nil {
		key := o.Key
		o.Value = func(obj metav1.Object) (string, bool) { return Value(key, obj.GetNamespace(), obj.GetName()), true }
	}
	if o.QPS < 0 || o.Burst < 0 || o.Concurrency < 0 || o.ScanRate < 0 || o.ScanDelay < 0 || o.Grace < 0 {
		return o, errors.New("labeller: QPS, Burst, Concurrency, Grace, ScanDelay and ScanRate must not be negative")
	}
	if o.Permit == nil {
		o.Permit = func(ctx context.Context) (context.Context, func(), bool) { return ctx, func() {}, true }
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{""}
	}
	if o.QPS == 0 {
		o.QPS = defaultQPS
	}
	if o.Burst == 0 {
		o.Burst = defaultBurst(o.QPS)
	}
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.ScanPeriod == 0 {
		o.ScanPeriod = 10 * time.Minute
	}
	if o.ScanRate == 0 {
		o.ScanRate = defaultScanRate
	}
	if o.NotServed == nil {
		o.NotServed = func(schema.GroupVersionResource) {}
	}
	if o.Report == nil {
		o.Report = func(error) {}
	}
	return o, nil
}

// verbs are the verbs that the labeller uses.
var verbs = []string{"list", "watch", "patch"}

// Rules returns the permissions that the labeller needs, for a ClusterRole or, if Options.Namespaces is set, for a Role
// in each of these namespaces.
func Rules(resources ...schema.GroupVersionResource) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 0, len(resources))
	for _, r := range resources {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: verbs})
	}
	return rules
}

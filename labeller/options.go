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

// Permit asks whether a batch of patches may be sent now. If ok, there is a context for the batch, derived from ctx,
// that ends when the permission is withdrawn, and a leave, to be called when the batch is over. If not, the labeller
// drops what it was doing and begins anew, with a fresh list, when it is permitted again.
//
// It is called before each batch, and at least every quarter of a second to learn whether the permission stands;
// concurrently, from several goroutines. It must not block. A batch takes at most about a quarter of a second, or 5 s
// where the API server does not answer; so whoever waits for leave waits no longer.
type Permit func(ctx context.Context) (batch context.Context, leave func(), ok bool)

// Options are the options of New. Resources and Label are required.
type Options struct {
	// Resources are what is labelled, cluster-scoped ones included.
	Resources []schema.GroupVersionResource
	// Namespaces limits the labeller to these. Default: all. Leave it empty for cluster-scoped resources.
	Namespaces []string
	// Key is what is hashed, KeyName or KeyNamespace. Default KeyName. It must be the same for all who label a
	// resource. It is not looked at where Value is set.
	Key slot.Key
	// Label is the label to write: for objects sharded by their own Key, delivery.HashLabel of key and kind.
	Label string
	// Value returns the label's value for an object, of which it gets the metadata, or false for one that needs none:
	// its label is left as it is. It is called concurrently and must not change the object. Default: the hash of Key.
	Value func(obj metav1.Object) (value string, ok bool)
	// Permit says when to work. Default: always. Fix does not ask.
	Permit Permit
	// Grace is how long an object that the watch shows may wait for whoever created or changed it to label it in a
	// write of its own, which saves this one. Default: none.
	Grace time.Duration
	// QPS and Burst limit the patches, in objects per second and objects. Default 200 and half of QPS.
	QPS   float32
	Burst int
	// Concurrency is the largest number of patches at a time. Default 16.
	Concurrency int
	// ScanPeriod is the time between scans, from the end of one to the begin of the next. Default 10 minutes;
	// negative: never, not even when the labeller begins.
	ScanPeriod time.Duration
	// ScanDelay is the time from the end of the first list, when the labeller begins, to its first scan. Default: none.
	// Where the labelling moves from one to another, it keeps each from looking at everything anew.
	ScanDelay time.Duration
	// ScanRate limits a scan, in objects per second: each costs the API server the sending of its metadata. Default
	// 5000.
	ScanRate float32
	// NotServed is told when the API server does not serve a resource any more, or yet: a version may have been
	// removed, and another may be served. The labeller goes on asking. It is called concurrently, also several times
	// for one end, and must not block. Optional.
	NotServed func(schema.GroupVersionResource)
	// Report is told what went wrong and will be tried again. It is called from several goroutines, at most a few
	// times a second, and must not block. Optional.
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
		return o, fmt.Errorf("labeller: key %v: the label serves the keys Name and Namespace only; deliver by another way or choose one of these", o.Key)
	}
	if o.Label == "" {
		return o, errors.New("labeller: Options.Label is empty: name the label to write, as delivery.HashLabel does")
	}
	if problems := validation.IsQualifiedName(o.Label); len(problems) > 0 {
		return o, fmt.Errorf("labeller: Options.Label %q is no name of a label: %s", o.Label, strings.Join(problems, "; "))
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
		o.QPS = 200
	}
	if o.Burst == 0 {
		o.Burst = max(1, int(o.QPS/2))
	}
	if o.Concurrency == 0 {
		o.Concurrency = 16
	}
	if o.ScanPeriod == 0 {
		o.ScanPeriod = 10 * time.Minute
	}
	if o.ScanRate == 0 {
		o.ScanRate = 5000
	}
	if o.NotServed == nil {
		o.NotServed = func(schema.GroupVersionResource) {}
	}
	if o.Report == nil {
		o.Report = func(error) {}
	}
	return o, nil
}

// verbs are what the labeller does.
var verbs = []string{"list", "watch", "patch"}

// Rules returns what the labeller needs to be allowed: for a ClusterRole, or where Options.Namespaces is set, for a
// Role in each of these.
func Rules(resources ...schema.GroupVersionResource) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 0, len(resources))
	for _, r := range resources {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: verbs})
	}
	return rules
}

package rotatest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
)

var seedFlag = flag.Uint64("rotatest.seed", 1, "what rotatest chooses lags, moves and kills by")

// rotaName is the name of the rota, and of the namespace of its table and Leases.
const rotaName = "rotatest"

// kit is the state of one call of Run.
type kit struct {
	o    Options
	seed uint64
	// patience bounds each wait.
	patience time.Duration

	mapper  meta.RESTMapper
	dynamic dynamic.Interface
	// metadata reads the objects of resources, which are the resources that may have objects in a namespace.
	metadata  metadata.Interface
	resources []listed
	own       client.Client // for the rota's objects
	store     *store.Kubernetes
	// namespaces are the namespaces that existed before the first run. controllers is true if a controller deletes them.
	namespaces  map[string]*unstructured.Unstructured
	controllers bool
	// begun is when the first run began, on the API server's clock.
	begun time.Time
	// started counts the Pods.
	started int
	// sorts are the sorts of writes of one member, by phase.
	sorts map[string]sorts
	// workload are the objects on which one member works. Its rota has the same slots and key as the members.
	workload map[object]bool
	slots    slot.Count
	key      slot.Key
	// generated counts the objects with generated names that one member creates.
	generated map[place]int
	// versions are the versions in which its objects were read.
	versions map[schema.GroupResource]string
}

type sorts struct {
	order  []string
	number map[string]int
}

// Run runs an operator as two members of a rota and reports where the objects do not become what they become with one
// member. The subtests are share, moves, lag, timeout and kill; `go test -run 'TestSharded/kill'` runs one of them. The
// flag -rotatest.seed selects other lags, moves and kills. Timing depends on the machine, so a seed does not repeat a
// run exactly.
//
// Run takes one to two minutes for an operator that needs little time. Two calls on one API server wait for each other;
// if another process is using rotatest on it, Run fails. When Run returns, the managers have ended, and everything
// created was deleted except Events, the namespaces of Objects, and the table in the namespace rotatest.
func Run(t *testing.T, o Options) {
	t.Helper()
	o, err := o.withDefaults()
	if err != nil {
		t.Fatalf("rotatest: %v", err)
	}
	defer alone(o.Config.Host)()
	ctx, cancel := bounded(t, o.Timeout)
	defer cancel()
	k, err := newKit(ctx, o, *seedFlag)
	if err != nil {
		t.Fatalf("rotatest: %v", err)
	}
	defer func() {
		if err := k.close(); err != nil {
			t.Errorf("rotatest: %v", err)
		}
	}()
	want, err := k.reference(ctx)
	repanic(err)
	if err != nil {
		t.Fatalf("rotatest: with one member and without any fault: %v", err)
	}
	for phase, s := range want {
		if texts := k.remadeMore(&state{}, s); len(texts) > 0 {
			t.Logf("rotatest: also with one member, up to phase %q:\n%s", phase, indent(strings.Join(texts, "\n")))
		}
		if len(s.failing) > 0 {
			t.Logf("rotatest: also with one member, reconciles go on failing in phase %q:\n%s", phase,
				indent(failureText(s.failing)))
		}
	}
	// Before the first difference counts, a second run with one member has to reach the same objects as the first.
	compared, unstable := false, ""
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if unstable != "" {
				t.Skip("rotatest: there is nothing to compare with")
			}
			report, err := k.try(ctx, f, want)
			repanic(err)
			if err == nil {
				t.Logf("rotatest: %s", report)
				return
			}
			if d := (*differenceError)(nil); errors.As(err, &d) && !compared {
				again, same := k.again(ctx, want)
				if compared = true; !same {
					unstable = again
					t.Skipf("rotatest: there is nothing to compare with: %s", report)
				}
				t.Logf("rotatest: %s", again)
			}
			t.Errorf("rotatest: %s\nAgain: go test -run '^%s$' -rotatest.seed=%d", report,
				strings.ReplaceAll(t.Name(), "/", "$/^"), k.seed)
		})
	}
	if unstable != "" {
		t.Errorf("rotatest: %s", unstable)
	}
}

// bounded returns a context that ends early enough for a report and for cleanup, before go test ends the process.
func bounded(t *testing.T, timeout time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	cause := fmt.Errorf("Options.Timeout, %v, has passed", timeout)
	if deadline, ok := t.Deadline(); ok {
		if left := time.Until(deadline) - cleanTimeout; left < timeout {
			timeout, cause = left, errors.New("the time of go test (-timeout) is nearly over")
		}
	}
	return context.WithTimeoutCause(t.Context(), timeout, cause)
}

// reference runs the operator as one member.
func (k *kit) reference(ctx context.Context) (map[string]*state, error) {
	r, err := k.newRun(reference)
	if err != nil {
		return nil, err
	}
	states, err := r.play(ctx, nil)
	if err != nil {
		return nil, err
	}
	for phase := range states {
		order, number := r.record.sorts(phase)
		k.sorts[phase] = sorts{order, number}
	}
	k.versions, k.workload, k.generated = maps.Clone(r.record.versions), r.workload(), r.record.generated()
	if len(k.sorts[creating].order)+len(k.sorts[changing].order) == 0 {
		return nil, errors.New("the operator wrote nothing: does Setup add its controllers, and are Objects of its kinds?")
	}
	if len(r.reconciles.visited()) == 0 {
		return nil, errors.New("no sharded controller reconciled anything, so there is nothing to test: does Setup build " +
			"the operator's controllers with ctrlrt.NewControllerManagedBy, and are Objects of the kinds that they are For?")
	}
	return states, nil
}

// try runs the operator with a fault. The report describes the result, including the error.
func (k *kit) try(ctx context.Context, f *fault, want map[string]*state) (report string, err error) {
	r, err := k.newRun(f)
	if err != nil {
		return err.Error(), err
	}
	begun := time.Now()
	if _, err = r.play(ctx, want); err == nil {
		return fmt.Sprintf("%s: as with one member, after %d writes in %v (seed %d)%s", f.what, len(r.record.writes),
			time.Since(begun).Round(time.Second/10), k.seed, r.notes()), nil
	}
	report = fmt.Sprintf("%s (seed %d): %v%s", f.what, k.seed, err, r.notes())
	report += k.strangers(r)
	if hints := r.log.hints(); hints != "" {
		report += "\nWhat Rota logged of the operator's code:\n" + indent(hints)
	}
	return report, err
}

// again reports whether the operator makes the same of the objects twice, with one member.
func (k *kit) again(ctx context.Context, want map[string]*state) (report string, same bool) {
	r, err := k.newRun(reference)
	if err == nil {
		_, err = r.play(ctx, want)
	}
	var d *differenceError
	switch {
	case errors.As(err, &d):
		diff := strings.NewReplacer("-one member", "-first time", "+two members", "+second time").Replace(d.diff)
		return "also with one member, the objects are not the same each time. If that is intended, remove the " +
			"difference in Options.Normalize:\n" + indent(diff), false
	case err != nil:
		return fmt.Sprintf("a second run with one member failed: %v", err), false
	}
	return "a second run with one member came to the same objects as the first", true
}

// busy holds a lock for each API server.
var busy sync.Map

func alone(host string) (leave func()) {
	mu, _ := busy.LoadOrStore(host, &sync.Mutex{})
	lock, _ := mu.(*sync.Mutex)
	lock.Lock()
	return lock.Unlock
}

// newKit checks the API server and deletes the table of an earlier Run.
func newKit(ctx context.Context, o Options, seed uint64) (*kit, error) {
	k := &kit{o: o, seed: seed, patience: defaultPatience, sorts: map[string]sorts{}}
	return k, k.prepare(ctx)
}

func (k *kit) prepare(ctx context.Context) error {
	cfg := rest.CopyConfig(k.o.Config)
	cfg.QPS = -1
	ask := rest.CopyConfig(cfg)
	ask.Timeout = 10 * time.Second
	server, err := discovery.NewDiscoveryClientForConfig(ask)
	if err != nil {
		return fmt.Errorf("Options.Config: %w", err)
	}
	if _, err := server.ServerVersion(); err != nil {
		return fmt.Errorf("Options.Config: the API server at %s does not answer: %w", cfg.Host, err)
	}
	http, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("Options.Config: %w", err)
	}
	if k.mapper, err = apiutil.NewDynamicRESTMapper(cfg, http); err != nil {
		return fmt.Errorf("Options.Config: %w", err)
	}
	if err := checkServed(k.o, k.mapper); err != nil {
		return err
	}
	if k.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return err
	}
	silent := rest.CopyConfig(cfg)
	silent.WarningHandler = rest.NoWarnings{} // it also lists deprecated kinds
	if k.metadata, err = metadata.NewForConfig(silent); err != nil {
		return err
	}
	if k.resources, err = resourcesIn(server, k.o.Ignore); err != nil {
		return err
	}
	if k.own, err = client.New(cfg, client.Options{Scheme: clientgoscheme.Scheme}); err != nil {
		return err
	}
	if err := k.claim(ctx); err != nil {
		return err
	}
	if k.begun, err = k.clock(ctx); err != nil {
		return err
	}
	k.store, err = store.NewKubernetes(cfg, store.Options{Namespace: rotaName, Name: rotaName})
	return err
}

// claim creates the namespaces and deletes what an earlier process left of the rota.
func (k *kit) claim(ctx context.Context) error {
	needed := map[string]bool{rotaName: true}
	for _, obj := range k.o.Objects {
		if obj.GetNamespace() != "" {
			needed[obj.GetNamespace()] = true
		}
	}
	for name := range needed {
		err := k.own.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	if err := k.noteNamespaces(ctx); err != nil {
		return err
	}
	if err := refuseOthers(ctx, k.own); err != nil {
		return err
	}
	if err := deleteLeases(ctx, k.own); err != nil {
		return err
	}
	table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: rotaName, Name: rotaName}}
	if err := k.own.Delete(ctx, table); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the table of an earlier run: %w", err)
	}
	return nil
}

// close deletes the Leases, so that the next process need not wait for them to expire. All members have ended.
func (k *kit) close() error {
	defer k.store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return deleteLeases(ctx, k.own)
}

// newClient returns a client for the test whose writes are recorded.
func (k *kit) newClient(r *recorder) (client.Client, error) {
	cfg := rest.CopyConfig(k.o.Config)
	cfg.QPS = -1
	cfg.Wrap(r.over)
	return client.New(cfg, client.Options{Scheme: k.o.Scheme, Mapper: k.mapper})
}

func (k *kit) describe(obj client.Object) string {
	gvk, err := apiutil.GVKForObject(obj, k.o.Scheme)
	if err != nil {
		return fmt.Sprintf("%T %s", obj, client.ObjectKeyFromObject(obj))
	}
	return describe(gvk.Kind, client.ObjectKeyFromObject(obj))
}

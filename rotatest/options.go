package rotatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
)

// Options describe the operator and its objects. Config, Setup, and Objects or Change are required.
//
// Setup, Change, Settled and Normalize are called one at a time, on other goroutines than the test's. They must not
// call t.Fatal, or functions that call it such as require.NoError. All but Normalize return errors instead.
type Options struct {
	// Config is the config of an API server on which nothing else writes the operator's objects meanwhile, not even a
	// manager that the test suite has started. Objects that others create in the namespaces of Objects are deleted. The
	// user needs all permissions.
	Config *rest.Config
	// Scheme contains the kinds of the operator and of Objects. Default: Manager.Scheme, or client-go's scheme.
	Scheme *runtime.Scheme
	// Manager contains the options of the operator's managers, as its main function sets them, such as Cache. Run replaces
	// the options that two managers in one process cannot share: the addresses of metrics, probes and pprof, the webhook
	// server (which then serves nothing), and the uniqueness of controllers' names. With LeaderElection, durations that
	// are not set are short.
	Manager manager.Options
	// Rota contains the operator's Key, Slots, Delivery, Label, LabelNamespaces, ByLoad and durations. Run sets the rest.
	// Default: the defaults of rota.Options, except for a LeaseDuration of 3 s and a LeaveTimeout of 10 s.
	Rota rota.Options
	// Setup adds the controllers to a manager, as the operator's main function does. It is called for each member, about
	// ten times. All members run in one process and share package variables, so keep the in-memory state of a replica in
	// values that Setup creates.
	Setup func(mgr *ctrlrt.Manager) error

	// Objects are created at the start of each run, in this order, and deleted at its end, in reverse order. Missing
	// namespaces are created and stay. Objects must not contain Namespaces; create those in Change. The operator and
	// Change must not write objects that existed before, other than Namespaces, because Run cannot restore them: such a
	// write gets an error, and Run fails. Give six or more objects of the sharded kind. If all are in one slot, so that
	// one member does everything, Run fails.
	Objects []client.Object
	// Change changes, creates or deletes objects in each run after Objects have settled. It must do the same each time.
	// Objects that it creates are deleted at the end of the run. It may be nil.
	Change func(ctx context.Context, c client.Client) error
	// Settled reports whether the operator has finished its work. It is called several times a second after Objects were
	// created, after Change, and after Objects were deleted (the client then finds none of them). In addition, an operator
	// has settled only when it has written nothing for the time Quiet.
	Settled func(ctx context.Context, c client.Client) (bool, error)
	// Quiet is how long an operator that has settled writes nothing. It must be longer than the operator's RequeueAfter
	// between two writes. When watches lag, the lag is added. Default 1.5 s.
	Quiet time.Duration

	// Normalize removes from an object what differs between two runs although nothing is wrong, such as generated
	// passwords, or names that the operator makes up. It gets a copy. docs/shard.md lists what Run already removes.
	Normalize func(obj *unstructured.Unstructured)
	// Ignore are kinds that are not compared and that others may create. Events and Leases are never compared.
	Ignore []schema.GroupKind
	// Recreates are kinds whose objects the operator deletes and makes again on purpose, however often, such as Jobs.
	// Objects of other kinds must not be made again under the same name more often than with one member, because their
	// data would be lost.
	Recreates []schema.GroupKind
	// ForeignWrites allows reconciles to write other objects of sharded kinds than their own, although another member may
	// be reconciling these. Otherwise such writes are failures.
	ForeignWrites bool

	// Timeout bounds the whole call. Default 5 minutes, or the time that go test leaves, if that is less.
	Timeout time.Duration
}

const (
	defaultLease   = 3 * time.Second
	defaultLeave   = 10 * time.Second
	defaultQuiet   = 1500 * time.Millisecond
	defaultTimeout = 5 * time.Minute
)

func (o Options) withDefaults() (Options, error) {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.Config == nil {
		refuse("Options.Config is nil: pass the config of an API server, such as what Start of envtest's Environment returns")
	}
	if o.Setup == nil {
		refuse("Options.Setup is nil: pass what adds the operator's controllers to a manager")
	}
	if len(o.Objects) == 0 && o.Change == nil {
		refuse("Options.Objects is empty, and there is no Change: without objects the operator has nothing to do")
	}
	if o.Scheme != nil && o.Manager.Scheme != nil && o.Scheme != o.Manager.Scheme {
		refuse("Options.Scheme and Options.Manager.Scheme are two schemes: leave one of them out")
	}
	if o.Manager.Cache.HTTPClient != nil || o.Manager.Client.HTTPClient != nil {
		refuse("Options.Manager has an HTTPClient: its requests could not be disturbed, leave it out")
	}
	if o.Rota.Solo || o.Rota.Group != nil {
		refuse("Options.Rota has Solo or Group: leave it out, rotatest runs one rota of two members")
	}
	for name, d := range map[string]time.Duration{"Quiet": o.Quiet, "Timeout": o.Timeout} {
		if d < 0 {
			refuse("Options.%s %v: must not be negative", name, d)
		}
	}
	if o.Scheme == nil {
		o.Scheme = o.Manager.Scheme
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	o.Quiet, o.Timeout = cmp.Or(o.Quiet, defaultQuiet), cmp.Or(o.Timeout, defaultTimeout)
	o.Rota.LeaseDuration = cmp.Or(o.Rota.LeaseDuration, defaultLease)
	o.Rota.LeaveTimeout = cmp.Or(o.Rota.LeaveTimeout, defaultLeave)
	problems = append(problems, o.checkObjects()...)
	return o, errors.Join(problems...)
}

// checkObjects returns the errors in Objects that can be found without the API server.
func (o Options) checkObjects() (problems []error) {
	seen := map[string]int{}
	for i, obj := range o.Objects {
		if obj == nil {
			problems = append(problems, fmt.Errorf("Options.Objects[%d] is nil", i))
			continue
		}
		gvk, err := apiutil.GVKForObject(obj, o.Scheme)
		if err != nil {
			problems = append(problems, fmt.Errorf("Options.Objects[%d] is a %T, and the scheme does not know its kind: add it "+
				"by the AddToScheme of its package: %w", i, obj, err))
			continue
		}
		switch what := describe(gvk.Kind, client.ObjectKeyFromObject(obj)); {
		case gvk.Group == "" && gvk.Kind == "Namespace":
			problems = append(problems, fmt.Errorf("Options.Objects[%d] is %s: leave it out, Run creates the namespaces of "+
				"Objects; one that the operator works on create in Options.Change", i, what))
		case obj.GetUID() != "" || obj.GetResourceVersion() != "":
			problems = append(problems, fmt.Errorf("Options.Objects[%d], %s, comes from an API server: pass a new object, "+
				"without uid and resourceVersion", i, what))
		case obj.GetName() == "":
			problems = append(problems, fmt.Errorf("Options.Objects[%d], a %s, has no name: each run creates it anew, so give "+
				"it one", i, gvk.Kind))
		default:
			id := gvk.GroupKind().String() + " " + what
			if first, twice := seen[id]; twice {
				problems = append(problems, fmt.Errorf("Options.Objects[%d] and [%d] are both %s", first, i, what))
			}
			seen[id] = i
		}
	}
	return problems
}

// checkServed returns an error for kinds that the API server does not serve, and for names without a namespace.
func checkServed(o Options, mapper meta.RESTMapper) error {
	var problems []error
	for i, obj := range o.Objects {
		gvk, err := apiutil.GVKForObject(obj, o.Scheme)
		if err != nil {
			return err
		}
		m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		namespaced := err == nil && m.Scope.Name() == meta.RESTScopeNameNamespace
		switch what := describe(gvk.Kind, client.ObjectKeyFromObject(obj)); {
		case meta.IsNoMatchError(err):
			problems = append(problems, fmt.Errorf("Options.Objects[%d], %s: the API server does not serve %s %s: install its "+
				"CRD first, such as by CRDDirectoryPaths of envtest's Environment", i, what, gvk.GroupVersion(), gvk.Kind))
		case err != nil:
			problems = append(problems, fmt.Errorf("Options.Objects[%d], %s: ask the API server for its kind: %w", i, what, err))
		case namespaced && obj.GetNamespace() == "":
			problems = append(problems, fmt.Errorf("Options.Objects[%d], %s, has no namespace", i, what))
		case !namespaced && obj.GetNamespace() != "":
			problems = append(problems, fmt.Errorf("Options.Objects[%d], %s, has a namespace, and its kind has none", i, what))
		}
	}
	return errors.Join(problems...)
}

// describe returns an object's kind, namespace and name for messages.
func describe(kind string, key client.ObjectKey) string {
	if key.Namespace == "" {
		return kind + " " + key.Name
	}
	return kind + " " + key.Namespace + "/" + key.Name
}

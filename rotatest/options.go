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

// Options say what operator to run, and on which objects. Config, Setup, and Objects or Change are required.
//
// Setup, Change, Settled and Normalize are called one at a time, not in the test's goroutine. They do not call t.Fatal
// or what calls it, such as require.NoError; all but Normalize return errors.
type Options struct {
	// Config is of an API server on which nothing else writes the operator's objects meanwhile: not a manager that the
	// test suite has started either. What others create in the namespaces of Objects is deleted. Its user may
	// do everything.
	Config *rest.Config
	// Scheme has the kinds of the operator and of Objects. Default: that of Manager, or client-go's.
	Scheme *runtime.Scheme
	// Manager has the options of the operator's managers, as its main function sets them, such as Cache. Run replaces
	// those that two managers in one process cannot share: the addresses of metrics, probes and pprof, the webhook server
	// (it serves nothing), and the uniqueness of controllers' names. With LeaderElection, durations that are not set are
	// short.
	Manager manager.Options
	// Rota has the operator's Key, Slots, Delivery, Label, LabelNamespaces, ByLoad and durations. Run sets the rest.
	// Default: those of rota.Options, but a LeaseDuration of 3 s and a LeaveTimeout of 10 s.
	Rota rota.Options
	// Setup adds the controllers to a manager, as the operator's main function does. It is called for each member, some
	// ten times. Members are in one process, so what they keep in package variables they share. Keep in what Setup makes
	// whatever a replica keeps in memory.
	Setup func(mgr *ctrlrt.Manager) error

	// Objects are created at the start of each run, in this order, and deleted at its end, in the opposite one. Their
	// namespaces are created if they are missing, and stay. Namespaces themselves are refused here: create them in Change.
	// What was there before, but for Namespaces, neither the operator nor Change may write, since Run cannot restore it:
	// such a write gets an error, and Run fails. Give six or more objects of the sharded kind. Where all are in one slot,
	// so that one member does everything, Run fails.
	Objects []client.Object
	// Change changes, creates or deletes objects in each run once those of Objects have settled. It must do the same each
	// time. What it creates is deleted at the end of the run. nil: nothing changes.
	Change func(ctx context.Context, c client.Client) error
	// Settled reports whether the operator has done what it has to do. It is asked several times a second after Objects
	// were created, after Change, and after Objects were deleted (the client finds none of them then). Without it, and
	// besides it, an operator has settled when it has written nothing for the time Quiet.
	Settled func(ctx context.Context, c client.Client) (bool, error)
	// Quiet is for how long an operator that has settled writes nothing. It must be longer than its RequeueAfter between
	// two writes. Where watches lag, their lag comes on top. Default 1.5 s.
	Quiet time.Duration

	// Normalize takes out of an object what differs between two runs although nothing is wrong, such as generated
	// passwords, or names that the operator makes up. It gets a copy. docs/shard.md lists what Run takes out itself.
	Normalize func(obj *unstructured.Unstructured)
	// Ignore are kinds that are not compared, and that others may create. Events and Leases never are compared.
	Ignore []schema.GroupKind
	// Recreates are kinds whose objects the operator deletes and makes again on purpose, however often, such as Jobs.
	// Others must not be made again under the same name more often than with one member: their data would be lost.
	Recreates []schema.GroupKind
	// ForeignWrites says that reconciles write objects of sharded kinds besides their own on purpose, although another
	// member may reconcile them at that time. Otherwise such writes are failures.
	ForeignWrites bool

	// Timeout bounds everything together. Default 5 minutes, or what go test leaves, if that is less.
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
		refuse("Options.Config is nil: pass that of an API server, such as what Start of envtest's Environment returns")
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

// checkObjects returns what is wrong with Objects without looking at the API server.
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

// describe names an object for people.
func describe(kind string, key client.ObjectKey) string {
	if key.Namespace == "" {
		return kind + " " + key.Name
	}
	return kind + " " + key.Namespace + "/" + key.Name
}

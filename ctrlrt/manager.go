package ctrlrt

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// Manager is a controller-runtime manager whose sharded controllers work on this member's share.
type Manager struct {
	manager.Manager
	inner  manager.Manager
	cache  *wholeCache // see GetCache
	rota   *rota.Rota
	kinds  *kinds
	reader *reader
	// workers has one worker for each sharded controller. With rota.Rota.JoinAfter they are built while the manager runs.
	workersMu  sync.Mutex
	workers    []*worker
	leaderOnly leaderOnly
	elected    elected
	declared   declared
	// options are the user's, with Scheme filled in.
	options manager.Options
	indexes *indexes

	// cachesMade is true once Start has made the caches other than the manager's. children are the indexes of the cache by
	// owners, or nil without such a cache.
	cachesMu   sync.Mutex
	cachesMade bool
	children   *indexes

	wholeOnce sync.Once
	whole     *whole
	wholeErr  error

	// registered is true if the registry has this member's metrics, and started if Start was called.
	registered bool
	started    atomic.Bool

	inFlight inFlight

	// ready is closed when the caches have started, and stopping when the inner manager begins to stop.
	ready, stopping chan struct{}
}

var _ manager.Manager = (*Manager)(nil)

// NewManager makes a manager for the member r, as controller-runtime's manager.New does, and does no other I/O.
//
// Options.Cache.NewInformer must be nil. All other options keep their meaning. LeaderElection applies only to unsharded
// controllers. It is refused unless the rota has NoStockReplicas or Solo, because sharded controllers do not wait for
// the leader. A Rota can have only one manager. The manager gets a readiness check "rota", which passes once the member
// has joined.
func NewManager(cfg *rest.Config, r *rota.Rota, o manager.Options) (*Manager, error) {
	if cfg == nil {
		return nil, errors.New("ctrlrt: must specify Config")
	}
	if r == nil {
		return nil, errors.New("ctrlrt: must specify Rota: make one with rota.New")
	}
	if o.Cache.NewInformer != nil {
		return nil,
			errors.New("ctrlrt: Options.Cache.NewInformer is set, but it is where sharded informers come from: leave it out")
	}
	consistent, err := controllerruntime.ReadsOwnWrites(o.Client.Cache)
	if err != nil {
		return nil, err
	}
	if err := checkElection(r, o); err != nil {
		return nil, err
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	// The transport below the clients checks writes and combines the users' selectors with ours.
	o.Cache.HTTPClient, o.Client.HTTPClient = wrapClient(r, o.Cache.HTTPClient), wrapClient(r, o.Client.HTTPClient)
	o.Client.Cache = ownOptions(o.Client.Cache)
	m := &Manager{rota: r, kinds: newKinds(), ready: make(chan struct{}), stopping: make(chan struct{}), options: o}
	if consistent {
		shareOf(r).KeepWrites()
	}
	shareOf(r).KeepNames()
	o.Cache.NewInformer = m.newInformer(shareOf(r).NewInformer)
	newClient := o.NewClient
	if newClient == nil {
		newClient = client.New
	}
	o.NewClient = func(config *rest.Config, co client.Options) (client.Client, error) {
		live := co
		live.Cache = nil
		direct, err := client.New(config, live)
		if err != nil {
			return nil, err
		}
		m.reader = &reader{
			direct: direct, live: &uncached{Reader: direct, scheme: o.Scheme, options: m.options.Cache},
			whole: m.wholeReader, rota: r, share: shareOf(r), kinds: m.kinds, scheme: o.Scheme,
			consistent: consistent,
		}
		if co.Cache != nil {
			m.reader.Reader = co.Cache.Reader
			withReader := *co.Cache
			withReader.Reader = m.reader
			if informers, ok := co.Cache.Reader.(cache.Informers); ok && consistent {
				withReader.Reader = &informed{informers, m.reader}
			}
			co.Cache = &withReader
		}
		c, err := newClient(config, co)
		if err != nil {
			return nil, err
		}
		c = m.consistently(c)
		return &writingClient{Client: c, mgr: m}, nil
	}
	inner, err := manager.New(r.WrapConfig(cfg), o)
	if err != nil {
		return nil, err
	}
	m.Manager, m.inner = inner, inner
	r.Adapt(adapter.Grant()).LogTo(inner.GetLogger())
	m.reader.log, m.reader.live.mapper = inner.GetLogger(), inner.GetRESTMapper()
	if o.NewCache != nil {
		m.reader.live.report = sync.OnceFunc(func() {
			inner.GetLogger().Info("The API server answers in place of the cache, by the namespaces, selectors and transforms " +
				"of Cache in the manager's options. What the function NewCache changes of these is not known: set it in Cache, " +
				"or such answers have other objects than the cache, or are refused for lack of permissions")
		})
	}
	m.indexes = &indexes{FieldIndexer: inner.GetFieldIndexer(), later: r.Adapt(adapter.Grant()).SettingUp}
	r.Adapt(adapter.Grant()).FinishSetup(func(ctx context.Context) error {
		return errors.Join(m.addCaches(ctx), m.indexes.make(ctx))
	})
	if m.reader.Reader == nil {
		m.reader.Reader = inner.GetCache()
	}
	m.cache = &wholeCache{Cache: inner.GetCache(), reader: m.reader, mgr: m}
	if err := inner.Add(starter{m.ready, m.stopping, r.Adapt(adapter.Grant()).Ending}); err != nil {
		return nil, err
	}
	// A rollout must not continue before the new member has joined. A member without slots is ready, since a rollout must
	// not wait for slots that only a leaving member can give up.
	if err := inner.AddReadyzCheck(readyCheck, r.Ready); err != nil {
		return nil, err
	}
	var already prometheus.AlreadyRegisteredError
	switch err := metrics.Registry.Register(r.Collector()); {
	case err == nil:
		m.registered = true
	case errors.As(err, &already) && already.ExistingCollector == r.Collector():
	case errors.As(err, &already):
		inner.GetLogger().Error(nil,
			"This member has no metrics: another of the same rota in this process has them. Give each a process of its own, "+
				"or register Rota.Collector with another registry", "rota", r.Name().String())
	default:
		return nil, fmt.Errorf("ctrlrt: metrics of the rota: %w", err)
	}
	return m, nil
}

// checkElection returns an error if the manager has leader election while a stock leader may run. Only a rota with a
// LeaderElectionID waits for that leader.
func checkElection(r *rota.Rota, o manager.Options) error {
	parts := r.Adapt(adapter.Grant())
	switch lease := parts.Election; {
	case !o.LeaderElection:
		return nil
	case lease.Name != "":
		return fmt.Errorf("ctrlrt: rota %s takes turns with stock replicas by Lease %s, and this manager has "+
			"LeaderElection, too: by that Lease the rota would wait for its own manager, and by another one unsharded "+
			"controllers would run beside the stock leader: leave LeaderElection out, and make unsharded controllers duties "+
			"(NewDutyControllerManagedBy)", r.Name(), lease)
	case parts.NoStockReplicas, parts.Solo:
		return nil
	}
	add := fmt.Sprintf("LeaderElectionID: %q", o.LeaderElectionID)
	if o.LeaderElectionNamespace != "" {
		add += fmt.Sprintf(", LeaderElectionNamespace: %q", o.LeaderElectionNamespace)
	}
	return fmt.Errorf("ctrlrt: this manager has LeaderElection, and rota %s has no LeaderElectionID, so its members "+
		"would work at once with a stock leader: leave LeaderElection out of the manager's options, make unsharded "+
		"controllers duties (NewDutyControllerManagedBy), and add %s to rota.Options. If no replica runs without Rota, add "+
		"NoStockReplicas: true instead, and keep LeaderElection", r.Name(), add)
}

// orElect returns advice to use leader election, for errors about runnables that need a leader. It is empty if the rota
// takes turns with stock replicas, because NewManager would refuse leader election.
func (m *Manager) orElect() string {
	if m.rota.Adapt(adapter.Grant()).Election.Name != "" {
		return ""
	}
	return "or, if no replica runs without Rota, set NoStockReplicas: true in rota.Options, and LeaderElection: true " +
		"and LeaderElectionID in the manager's options; "
}

// wrapClient returns a copy of a client with the member's transport, or nil for nil.
func wrapClient(r *rota.Rota, given *http.Client) *http.Client {
	if given == nil {
		return nil
	}
	wrapped := *given
	wrapped.Transport = r.WrapTransport(given.Transport)
	return &wrapped
}

// ownOptions returns a copy of the options without a reader, since a cluster sets the reader through the pointer.
func ownOptions(given *client.CacheOptions) *client.CacheOptions {
	if given == nil {
		return nil
	}
	own := *given
	own.Reader = nil
	return &own
}

type (
	// newInformerFunc is cache.Options.NewInformer.
	newInformerFunc = func(toolscache.ListerWatcher, runtime.Object, time.Duration,
		toolscache.Indexers) toolscache.SharedIndexInformer
	// newSharedFunc makes an informer that holds a share of a kind.
	newSharedFunc = func(schema.GroupKind, toolscache.ListerWatcher, runtime.Object, time.Duration,
		toolscache.Indexers) toolscache.SharedIndexInformer
)

func (m *Manager) newInformer(shared newSharedFunc) newInformerFunc {
	return func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		gvk, err := apiutil.GVKForObject(obj, m.options.Scheme)
		if err != nil {
			// Cannot happen, since the cache has looked the kind up before.
			return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
		}
		return shared(gvk.GroupKind(), lw, obj, resync, indexers)
	}
}

// readyCheck is the name of the readiness check that NewManager adds.
const readyCheck = "rota"

// AddReadyzCheck adds a readiness check, as controller-runtime's manager does. It refuses the name "rota", which
// belongs to Rota.Ready: the inner manager would replace that check, and the replica would be ready before it has
// joined.
func (m *Manager) AddReadyzCheck(name string, check healthz.Checker) error {
	if name == readyCheck {
		return fmt.Errorf("ctrlrt: the readiness check %q is there already, and is the rota's own: it fails until the "+
			"member has joined. Leave yours out if it is Rota.Ready, or give it another name", name)
	}
	return m.Manager.AddReadyzCheck(name, check)
}

// Reconciling is an optional readiness check. It fails while all reconciles of a sharded controller fail on this member
// and none has succeeded since the start (rota.Rota.Failing). With it, a rollout stops if the new build or its
// permissions do not work at all. NewManager does not add it. If a backend were down, the check would fail on all
// members, remove them from the Services of their webhooks, and hold up rollouts.
func (m *Manager) Reconciling(*http.Request) error {
	return neverWorked(m.rota.Failing())
}

func neverWorked(failing []rota.Failing) error {
	for _, f := range failing {
		if f.Never {
			return errors.New(f.String())
		}
	}
	return nil
}

func (m *Manager) addWorker(w *worker) {
	m.workersMu.Lock()
	defer m.workersMu.Unlock()
	m.workers = append(m.workers, w)
}

func (m *Manager) allWorkers() []*worker {
	m.workersMu.Lock()
	defer m.workersMu.Unlock()
	return slices.Clone(m.workers)
}

// hasSharded reports whether a sharded controller has the name.
func (m *Manager) hasSharded(name string) bool {
	return slices.ContainsFunc(m.allWorkers(), func(w *worker) bool { return w.name == name })
}

// Rota returns the member that this manager works for.
func (m *Manager) Rota() *rota.Rota { return m.rota }

// KeepWhole makes every member cache all objects of a kind of which it would cache a share. Use it for unsharded
// controllers, webhooks and informers of this manager that need all objects, and for reconcilers that read objects of
// other members. Call it before the manager starts. Kinds that a sharded controller Watches do not need it.
//
// A kind that is only owned is then not sharded. A kind that a sharded controller is For stays sharded: each member
// reconciles its objects, and holds all objects in the cache of Whole. Get of other members' objects reads from that
// cache, and List returns all objects, even in that controller's reconciles.
func (m *Manager) KeepWhole(obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, m.GetScheme())
	if err != nil {
		return err
	}
	return m.keepWhole(gvk.GroupKind())
}

func (m *Manager) keepWhole(kind schema.GroupKind) error {
	if !m.kinds.keep(kind) {
		return nil
	}
	return shareOf(m.rota).Disown(kind)
}

// GetCache returns the cache for callers that need all objects of a kind. It refuses informers of kinds of which it
// holds only a share. Outside of sharded controllers, List returns all objects (but see Share).
func (m *Manager) GetCache() cache.Cache {
	return m.cache
}

// GetFieldIndexer returns the indexer that adds indexes to the manager's caches.
func (m *Manager) GetFieldIndexer() client.FieldIndexer { return m.indexes }

// Start starts the manager, joins the rota once the workers of all sharded controllers run, and blocks until ctx ends.
// Then it leaves the rota, while everything still runs, and stops controllers and caches afterwards (rule R9). The
// Pod's terminationGracePeriodSeconds should be longer than the sum of rota.Options.LeaveTimeout and the manager's
// GracefulShutdownTimeout. A second call returns an error and has no other effect.
func (m *Manager) Start(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return errors.New("ctrlrt: manager already started")
	}
	if m.registered {
		defer metrics.Registry.Unregister(m.rota.Collector()) // the next manager in this process registers its own
	}
	innerCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	rotaCtx, leave := context.WithCancel(ctx)
	defer leave()
	if err := errors.Join(m.leaderOnly.start(m), m.elected.start(m), m.declared.start(m)); err != nil {
		return err
	}
	if err := m.addCaches(ctx); err != nil {
		return err
	}
	managed := make(chan error, 1)
	go func() { managed <- m.inner.Start(innerCtx) }()
	select {
	case err := <-managed:
		return err
	case <-ctx.Done():
		stop()
		return <-managed
	case err := <-m.kinds.refused:
		stop()
		return errors.Join(err, <-managed)
	case <-m.ready:
	}
	go m.excuse(rotaCtx)
	member := make(chan error, 1)
	go func() { member <- m.rota.Run(rotaCtx) }()
	select {
	case err := <-member:
		stop()
		return errors.Join(err, <-managed)
	case err := <-m.kinds.refused:
		leave()
		err = errors.Join(err, <-member)
		stop()
		return errors.Join(err, <-managed)
	case <-m.stopping:
		m.GetLogger().Info("The manager stops by itself, and its informers with it: it lost its leader election, or " +
			"something that it runs failed. The error of its Start says what")
		leave()
		return m.stopped(managed, member)
	}
}

// stopped returns the error with which the inner manager stopped. With leader election it does not wait for the member
// to leave. If the leader's Lease was lost, the API server often cannot be reached, another replica leads, and
// runnables that need the leader only end with the process. The member's Lease then expires.
func (m *Manager) stopped(managed, member <-chan error) error {
	err := <-managed
	if m.options.LeaderElection {
		return err
	}
	return errors.Join(err, <-member)
}

// starter closes ready when the manager has started its caches. It runs on every replica. When the manager stops, it
// calls ending before the caches stop, since the manager waits for its runnables and stops the caches last.
type starter struct {
	ready, stopping chan struct{}
	ending          func()
}

// Start implements manager.Runnable.
func (s starter) Start(ctx context.Context) error {
	close(s.ready)
	<-ctx.Done()
	s.ending()
	close(s.stopping)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (starter) NeedLeaderElection() bool { return false }

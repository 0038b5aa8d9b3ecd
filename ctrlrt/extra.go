package ctrlrt

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// cached is a cache that a manager starts with its own.
type cached struct{ cache.Cache }

// GetCache is how a manager knows what holds a cache.
func (c cached) GetCache() cache.Cache { return c.Cache }

// Add adds a runnable, as always. Caches, and clusters and all else that has one, run on every member, and start before
// any controller does: reconcilers of every member read from them. controller-runtime itself would start a cache with
// Options.ByObject on the leader only.
//
// What needs a leader is refused where the manager has no leader election, since it would run on every replica: by
// Start what was added before, by Add what is added later.
func (m *Manager) Add(r manager.Runnable) error {
	if c, ok := r.(cache.Cache); ok {
		if _, ok := r.(hasCache); !ok {
			r = cached{c}
		}
	}
	if _, sharded := r.(asking); !sharded && (needsLeader(r) || isController(r)) {
		m.kinds.addUnsharded(describe(r))
	}
	if needsLeader(r) {
		if err := m.leaderOnly.add(m, describe(r)); err != nil {
			return err
		}
	}
	return m.inner.Add(r)
}

type hasCache interface{ GetCache() cache.Cache }

// needsLeader says whether a manager with leader election starts a runnable on the leader only.
func needsLeader(r manager.Runnable) bool {
	switch r := r.(type) {
	case hasCache, webhook.Server:
		return false
	case manager.LeaderElectionRunnable:
		return r.NeedLeaderElection()
	default:
		return true
	}
}

// isController tells a controller by its methods: controller-runtime exports no type of them.
func isController(r manager.Runnable) bool {
	_, ok := r.(interface{ GetLogger() logr.Logger })
	return ok
}

// describe names a runnable. Controllers have a field Name, functions the place where they are written.
func describe(r manager.Runnable) string {
	v := reflect.Indirect(reflect.ValueOf(r))
	if isController(r) && v.Kind() == reflect.Struct {
		if name := v.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String {
			return fmt.Sprintf("controller %q", name.String())
		}
	}
	if v.Kind() == reflect.Func && !v.IsNil() {
		f := goruntime.FuncForPC(v.Pointer())
		file, line := f.FileLine(f.Entry())
		return fmt.Sprintf("runnable %T %s (%s:%d)", r, f.Name(), filepath.Base(file), line)
	}
	return fmt.Sprintf("runnable %T", r)
}

// leaderOnly are the names of what a manager runs on the leader only.
type leaderOnly struct {
	mu      sync.Mutex
	names   []string
	started bool
}

// add notes one more. Once the manager has started it is told, or refused, at once.
func (l *leaderOnly) add(m *Manager, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return m.judgeLeaderOnly(name)
	}
	l.names = append(l.names, name)
	return nil
}

// start tells of what was added so far, or refuses it.
func (l *leaderOnly) start(m *Manager) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = true
	return m.judgeLeaderOnly(l.names...)
}

func (m *Manager) judgeLeaderOnly(names ...string) error {
	switch {
	case len(names) == 0:
		return nil
	case m.options.LeaderElection:
		m.GetLogger().Info("These run on the leader only. Where they fill what reconcilers of sharded controllers read, such as a lister or a cache of tokens, "+
			"it is empty on all other members: give such a runnable a method NeedLeaderElection that returns false", "runnables", strings.Join(names, ", "))
		return nil
	default:
		return fmt.Errorf("rota %s: these are not sharded and need a leader, but the manager has no leader election, so that they would run on every replica at "+
			"once: %s. Set LeaderElection: true and LeaderElectionID in the manager's options; or shard a controller with ctrlrt.NewControllerManagedBy; "+
			"or, for what may run on every replica, set NeedLeaderElection: ptr.To(false) in the controller's options, or give the runnable a method "+
			"NeedLeaderElection that returns false", m.rota.Name(), strings.Join(names, ", "))
	}
}

// newCache returns one more cache of the manager, with its options.
func (m *Manager) newCache(newInformer newInformerFunc) (cache.Cache, error) {
	o := m.options.Cache
	o.NewInformer = newInformer
	if o.Scheme == nil {
		o.Scheme = m.inner.GetScheme()
	}
	if o.Mapper == nil {
		o.Mapper = m.inner.GetRESTMapper()
	}
	if o.HTTPClient == nil {
		o.HTTPClient = m.inner.GetHTTPClient()
	}
	construct := m.options.NewCache
	if construct == nil {
		construct = cache.New
	}
	return construct(m.inner.GetConfig(), o)
}

// addChildren adds, where kinds are sharded in both ways, a cache that holds the objects of these kinds by their
// owners: the manager's own holds them by their own keys.
func (m *Manager) addChildren(ctx context.Context) error {
	both := m.kinds.both()
	if len(both) == 0 {
		return nil
	}
	children, err := m.newCache(m.newInformer(shareOf(m.rota).NewOwnedInformer))
	if err != nil {
		return err
	}
	for _, kind := range both {
		for _, index := range m.indexes.of(kind, m.GetScheme()) {
			if err := children.IndexField(ctx, index.obj, index.field, index.extract); err != nil {
				return fmt.Errorf("index %s of kind %s: %w", index.field, kind, err)
			}
		}
	}
	m.reader.children.Store(&children)
	return m.inner.Add(cached{children})
}

// Whole returns this manager with a second cache, which holds all objects of whatever is read from it, and a client
// that reads from that: for controllers that are not sharded, and for webhooks, that need a kind of which the manager's
// own cache has a share. Build them with the manager returned. Every call returns the same; the cache costs nothing
// before it is read from.
func (m *Manager) Whole() (manager.Manager, error) {
	m.wholeOnce.Do(func() { m.whole, m.wholeErr = m.newWhole() })
	if m.wholeErr != nil {
		return nil, m.wholeErr
	}
	return m.whole, nil
}

func (m *Manager) newWhole() (*whole, error) {
	c, err := cluster.New(m.inner.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.Logger, o.HTTPClient = m.inner.GetScheme(), m.inner.GetLogger(), m.inner.GetHTTPClient()
		o.NewCache, o.Cache = m.options.NewCache, m.options.Cache
		o.Cache.NewInformer = nil
		o.Client, o.NewClient = m.options.Client, m.options.NewClient
		o.Client.Cache = ownOptions(m.options.Client.Cache)
		o.MapperProvider = m.options.MapperProvider
	})
	if err != nil {
		return nil, err
	}
	if err := m.inner.Add(c); err != nil {
		return nil, err
	}
	return &whole{Manager: m, cluster: c, indexes: &indexes{FieldIndexer: c.GetFieldIndexer()}}, nil
}

// addWhole sees to the second cache where kinds are sharded and needed whole: it has the indexes of the first.
func (m *Manager) addWhole(ctx context.Context) error {
	for _, kind := range m.kinds.allInWhole() {
		if _, err := m.Whole(); err != nil {
			return err
		}
		has := m.whole.indexes.of(kind, m.GetScheme())
		for _, i := range m.indexes.of(kind, m.GetScheme()) {
			if slices.ContainsFunc(has, func(other index) bool {
				return other.field == i.field && reflect.TypeOf(other.obj) == reflect.TypeOf(i.obj)
			}) {
				continue
			}
			if err := m.whole.indexes.IndexField(ctx, i.obj, i.field, i.extract); err != nil {
				return fmt.Errorf("index %s of kind %s: %w", i.field, kind, err)
			}
		}
	}
	return nil
}

// wholeCache returns the cache of Whole.
func (m *Manager) wholeCache() (cache.Cache, error) {
	if _, err := m.Whole(); err != nil {
		return nil, err
	}
	return m.whole.cluster.GetCache(), nil
}

func (m *Manager) wholeReader() (client.Reader, error) { return m.wholeCache() }

// whole is a manager with another cache.
type whole struct {
	*Manager
	cluster cluster.Cluster
	indexes *indexes
}

// GetCache implements manager.Manager.
func (w *whole) GetCache() cache.Cache { return w.cluster.GetCache() }

// GetClient implements manager.Manager.
func (w *whole) GetClient() client.Client {
	return &writingClient{Client: w.cluster.GetClient(), mgr: w.Manager}
}

// GetFieldIndexer implements manager.Manager.
func (w *whole) GetFieldIndexer() client.FieldIndexer { return w.indexes }

// index is a call of IndexField.
type index struct {
	obj     client.Object
	field   string
	extract client.IndexerFunc
}

// indexes are the calls for the manager's cache: the cache of children has to have the same.
type indexes struct {
	client.FieldIndexer

	mu  sync.Mutex
	all []index
}

// IndexField implements client.FieldIndexer.
func (i *indexes) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if err := i.FieldIndexer.IndexField(ctx, obj, field, extract); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, index{obj, field, extract})
	return nil
}

func (i *indexes) of(kind schema.GroupKind, scheme *runtime.Scheme) []index {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []index
	for _, index := range i.all {
		if gvk, err := apiutil.GVKForObject(index.obj, scheme); err == nil && gvk.GroupKind() == kind {
			out = append(out, index)
		}
	}
	return out
}

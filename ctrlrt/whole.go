package ctrlrt

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// newCache returns another cache with the options of the manager's cache.
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

// addCaches makes the caches that the controllers built so far need in addition to the manager's, with all indexes.
func (m *Manager) addCaches(ctx context.Context) error {
	m.cachesMu.Lock()
	defer m.cachesMu.Unlock()
	m.cachesMade = true
	if err := m.addChildren(ctx); err != nil {
		return err
	}
	return m.addWhole(ctx)
}

// addCachesLate is addCaches for a controller that is built after Start (rota.Rota.JoinAfter).
func (m *Manager) addCachesLate() error {
	m.cachesMu.Lock()
	made := m.cachesMade
	m.cachesMu.Unlock()
	if !made {
		return nil // Start makes them
	}
	return m.addCaches(context.Background())
}

// addChildren adds a cache for the kinds that are sharded both by their own keys and by owners. It holds their objects
// by owner. The manager's cache holds them by their own keys.
func (m *Manager) addChildren(ctx context.Context) error {
	both := m.kinds.both()
	if len(both) == 0 {
		return nil
	}
	if m.children == nil {
		children, err := m.newCache(m.newInformer(shareOf(m.rota).NewOwnedInformer))
		if err != nil {
			return err
		}
		m.children = &indexes{FieldIndexer: children}
		m.reader.children.Store(&children)
		if err := m.inner.Add(cached{children}); err != nil {
			return err
		}
	}
	for _, kind := range both {
		if err := m.children.copy(ctx, m.indexes, kind, m.GetScheme()); err != nil {
			return err
		}
	}
	return nil
}

// Whole returns this manager with a second cache, which holds all objects of each kind that is read from it, and with a
// client that reads from that cache. Build unsharded controllers and webhooks with it if they need all objects of a
// kind of which the manager's cache holds a share. All calls return the same manager. The cache is empty until it is
// read.
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
		o.Cache.NewInformer = m.newInformer(shareOf(m.rota).NewWholeInformer)
		o.Client, o.NewClient = m.options.Client, m.newWholeClient
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

// newWholeClient makes the client of Whole. Its reads wait for own writes if the manager's options ask for that.
func (m *Manager) newWholeClient(config *rest.Config, o client.Options) (client.Client, error) {
	if m.reader.consistent && o.Cache != nil {
		withReader := *o.Cache
		withReader.Reader = &awaited{o.Cache.Reader, m.reader}
		if informers, ok := o.Cache.Reader.(cache.Informers); ok {
			withReader.Reader = &informed{informers, withReader.Reader}
		}
		o.Cache = &withReader
	}
	if m.options.NewClient != nil {
		return m.options.NewClient(config, o)
	}
	return client.New(config, o)
}

// addWhole makes the second cache if a kind is sharded and also needed whole, and gives it the first one's indexes.
func (m *Manager) addWhole(ctx context.Context) error {
	for _, kind := range m.kinds.allInWhole() {
		if _, err := m.Whole(); err != nil {
			return err
		}
		if err := m.whole.indexes.copy(ctx, m.indexes, kind, m.GetScheme()); err != nil {
			return err
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

// whole is the manager that Whole returns.
type whole struct {
	*Manager
	cluster cluster.Cluster
	indexes *indexes
}

// GetCache implements manager.Manager.
func (w *whole) GetCache() cache.Cache { return w.cluster.GetCache() }

// GetClient implements manager.Manager.
func (w *whole) GetClient() client.Client {
	return &writingClient{Client: w.consistently(w.cluster.GetClient()), mgr: w.Manager}
}

// GetFieldIndexer implements manager.Manager.
func (w *whole) GetFieldIndexer() client.FieldIndexer { return w.indexes }

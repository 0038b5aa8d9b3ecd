package ctrlrt

import "sigs.k8s.io/controller-runtime/pkg/cache"

// InnerCache is the cache that holds shares.
func (m *Manager) InnerCache() cache.Cache { return m.inner.GetCache() }

// NoLabels reports whether no object can have labels that the selector selects.
var NoLabels = noLabels

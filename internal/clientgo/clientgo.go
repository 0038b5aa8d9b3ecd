// Package clientgo bridges the versions of client-go and apimachinery that Rota works with: each function uses a
// feature of newer versions, or reports that it is missing. docs/versions.md lists the differences.
package clientgo

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
)

// KeepsOrder reports whether informers deliver events in the order in which they came. They do by default. Before
// client-go 0.36 a feature gate turns it off.
func KeepsOrder() (keeps bool) {
	defer func() {
		if recover() != nil { // newer versions do not have the gate
			keeps = true
		}
	}()
	return features.FeatureGates().Enabled(features.Feature("InOrderInformers"))
}

// SetShardSelector sets the shard selector of options, a field of apimachinery since 0.36. It returns false without
// that field. The caller then adds ShardSelectorParameter to the request.
func SetShardSelector(o *metav1.ListOptions, selector string) bool {
	field := reflect.ValueOf(o).Elem().FieldByName("ShardSelector")
	if !field.IsValid() {
		return false
	}
	field.SetString(selector)
	return true
}

// ShardSelectorParameter is the query parameter of lists and watches for the shard selector.
const ShardSelectorParameter = "shardSelector"

// WatchListUnsupported reports whether a ListerWatcher declares that its server or client cannot send initial events.
// Fake clients do since client-go 0.35, the first version whose informers ask for initial events by default.
func WatchListUnsupported(lw any) bool {
	says, ok := lw.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && says.IsWatchListSemanticsUnSupported()
}

// StoreVersion returns the resourceVersion that a store's content corresponds to, which stores record since client-go
// 0.36. ok is false if the store does not record it.
func StoreVersion(store cache.Store) (version string, ok bool) {
	noting, ok := store.(interface{ LastStoreSyncResourceVersion() string })
	if !ok {
		return "", false
	}
	return noting.LastStoreSyncResourceVersion(), true
}

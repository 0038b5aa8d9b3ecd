package clientgo

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
)

// KeepsOrder reports whether informers deliver events in the order in which they came, as they do by default. Before
// client-go 0.36 a feature gate turns that off.
//
// Unnecessary once client-go 0.36 is the lowest supported version.
func KeepsOrder() (keeps bool) {
	defer func() {
		if recover() != nil { // this version has no such gate any more
			keeps = true
		}
	}()
	return features.FeatureGates().Enabled(features.Feature("InOrderInformers"))
}

// SetShardSelector sets the field ShardSelector of options. It returns false if apimachinery has no such field; then
// the caller adds ShardSelectorParameter to the request.
//
// Unnecessary once apimachinery 0.36 is the lowest supported version.
func SetShardSelector(o *metav1.ListOptions, selector string) bool {
	field := reflect.ValueOf(o).Elem().FieldByName("ShardSelector")
	if !field.IsValid() {
		return false
	}
	field.SetString(selector)
	return true
}

// ShardSelectorParameter is the parameter of lists and watches that takes the shard selector.
const ShardSelectorParameter = "shardSelector"

// WatchListUnsupported reports whether a ListerWatcher declares that its server or client cannot send initial events.
// Fake clients declare it since client-go 0.35, the first version whose informers ask for initial events by default.
//
// Unnecessary once client-go 0.35 is the lowest supported version, which has
// watchlist.DoesClientNotSupportWatchListSemantics.
func WatchListUnsupported(lw any) bool {
	declares, ok := lw.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && declares.IsWatchListSemanticsUnSupported()
}

// StoreVersion returns the resourceVersion up to which a store is complete. ok is false before client-go 0.36, whose
// stores do not record it.
//
// Unnecessary once client-go 0.36 is the lowest supported version.
func StoreVersion(store cache.Store) (version string, ok bool) {
	recording, ok := store.(interface{ LastStoreSyncResourceVersion() string })
	if !ok {
		return "", false
	}
	return recording.LastStoreSyncResourceVersion(), true
}

// Package clientgo bridges the versions of client-go and apimachinery that Rota works with: each function uses what
// newer ones have, and says what older ones lack. docs/versions.md lists the differences.
package clientgo

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
)

// KeepsOrder reports whether informers hand on events in the order in which they came. They do by default. Before
// client-go 0.36 a feature gate turns it off.
func KeepsOrder() (keeps bool) {
	defer func() {
		if recover() != nil { // a version that has no such gate any more: nothing can turn it off
			keeps = true
		}
	}()
	return features.FeatureGates().Enabled(features.Feature("InOrderInformers"))
}

// SetShardSelector sets the shard selector of options, a field that apimachinery has since 0.36. It returns false if
// there is no such field: then the caller adds ShardSelectorParameter to the request.
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

// LacksWatchList reports whether a ListerWatcher says of itself that its server or client cannot send initial events.
// Fake clients say so since client-go 0.35, the first one whose informers ask for initial events by default.
func LacksWatchList(lw any) bool {
	says, ok := lw.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && says.IsWatchListSemanticsUnSupported()
}

// StoreVersion returns the resourceVersion up to which a store shows its kind, which stores note since client-go 0.36.
// ok is false if the store does not note it.
func StoreVersion(store cache.Store) (version string, ok bool) {
	noting, ok := store.(interface{ LastStoreSyncResourceVersion() string })
	if !ok {
		return "", false
	}
	return noting.LastStoreSyncResourceVersion(), true
}

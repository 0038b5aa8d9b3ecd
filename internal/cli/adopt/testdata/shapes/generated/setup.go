// Package generated has a client that a tool has written.
package generated

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func setup(cfg *rest.Config, c cache.ListerWatcher) {
	_, _ = NewForConfig(cfg)          // want OwnClient
	_ = NewFilteredServiceInformer(c) // want ClientInformer
}

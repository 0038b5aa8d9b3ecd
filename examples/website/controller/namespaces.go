package controller

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// Within returns options that limit a cache to namespaces, separated by commas. None: all.
func Within(namespaces string) cache.Options {
	var o cache.Options
	for name := range strings.SplitSeq(namespaces, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if o.DefaultNamespaces == nil {
			o.DefaultNamespaces = map[string]cache.Config{}
		}
		o.DefaultNamespaces[name] = cache.Config{}
	}
	return o
}

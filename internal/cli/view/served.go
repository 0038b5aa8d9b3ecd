package view

import (
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/rota-dev/rota/internal/coverage"
)

// servedEvery is how often the Reader checks which kinds the API server serves.
const servedEvery = 10 * time.Second

// served caches the kinds that the API server does not serve.
type served struct {
	asked string // the kinds asked about
	at    time.Time
	gone  []schema.GroupKind
	err   error
}

// kindsOf returns the kinds in the members' reports, sorted.
func kindsOf(reports []*coverage.Report) (out []schema.GroupKind) {
	for _, report := range reports {
		for kind := range report.Digests {
			out = append(out, kind)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

// notServed returns the sharded kinds that the API server does not serve. It asks again after servedEvery, or if
// members shard other kinds.
func (r *Reader) notServed(ctx context.Context, reports []*coverage.Report, now time.Time) ([]schema.GroupKind, error) {
	kinds := kindsOf(reports)
	var words []string
	for _, kind := range kinds {
		words = append(words, kind.String())
	}
	asked := strings.Join(words, " ")
	r.mu.Lock()
	known := r.served
	r.mu.Unlock()
	if known.asked != asked || now.Sub(known.at) >= servedEvery {
		known = served{asked: asked, at: now}
		known.gone, known.err = NotServed(ctx, r.client.Discovery(), kinds)
		r.mu.Lock()
		r.served = known
		r.mu.Unlock()
	}
	return known.gone, known.err
}

// NotServed returns the kinds that the API server does not serve in any version. It only asks about their groups, so
// other groups may be unreadable.
func NotServed(ctx context.Context, disco discovery.DiscoveryInterface, kinds []schema.GroupKind,
) (gone []schema.GroupKind, err error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	groups, err := disco.ServerGroups()
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == kind.Group })
		found := false
		if i >= 0 {
			for _, v := range groups.Groups[i].Versions {
				list, err := disco.ServerResourcesForGroupVersion(v.GroupVersion)
				if err != nil && !apierrors.IsNotFound(err) {
					return nil, err
				}
				found = found || list != nil && slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool {
					return a.Kind == kind.Kind && !strings.Contains(a.Name, "/")
				})
			}
		}
		if !found {
			gone = append(gone, kind)
		}
	}
	return gone, ctx.Err()
}

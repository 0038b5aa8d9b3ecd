package feed

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// A member waits beside a stock leader, with slots that it holds. The deletions are the leader's, however many come.
func TestDeletionsWhileLedElsewhere(t *testing.T) {
	s := newCommon(sharding.Options{Slots: 8})
	inf := NewInformer(s, configMapKind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	inf.Source.on.Store(true)
	h := &handler{informer: inf, user: cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		t.Errorf("a handler hears of %v", obj)
	}}}
	all := s.SlotCount().All()
	s.hold(all)
	h.OnDelete(configMap("ns", "before", ""))
	s.LedElsewhere(true)
	for n := range 10_000 {
		h.OnDelete(configMap("ns", strconv.Itoa(n), ""))
	}
	s.LedElsewhere(false)
	h.OnDelete(configMap("ns", "after", ""))
	got := map[string]bool{}
	for _, about := range inf.TakeMissed(all) {
		got[about.Name.Name] = true
	}
	if len(got) != 2 || !got["before"] || !got["after"] {
		t.Errorf("%d deletions are left to this member, want those before and after the leader: %.200v", len(got), got)
	}
}

package ctrlrt_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// uidJournal is what members reconciled: by name the version last, "" for one that was gone, and by UID who is busy
// with it.
type uidJournal struct {
	mu   sync.Mutex
	last map[string]string
	seen map[string]bool // versions
	busy map[types.UID]string
	errs []string
	// story is, by name, what was reconciled when, for a failure.
	story map[string][]string
}

func (j *uidJournal) reconcile(pod string, c client.Client) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		begun := time.Now()
		var cm corev1.ConfigMap
		if err := client.IgnoreNotFound(c.Get(ctx, req.NamespacedName, &cm)); err != nil {
			return reconcile.Result{}, err
		}
		j.mu.Lock()
		if other := j.busy[cm.UID]; cm.UID != "" && other != "" {
			j.errs = append(j.errs, fmt.Sprintf("%s, UID %s, is reconciled by %s and %s at once", req, cm.UID, other, pod))
		}
		j.busy[cm.UID] = pod
		// Of a deletion and a namesake, which another member may have, either may come first.
		if j.last[req.Name] = ""; cm.UID != "" {
			j.last[req.Name] = cm.ResourceVersion
			j.seen[cm.ResourceVersion] = true
		}
		j.story[req.Name] = append(j.story[req.Name], fmt.Sprintf("%s to %s %s UID %q version %q",
			begun.Format("05.000000"), time.Now().Format("05.000000"), pod, cm.UID, cm.ResourceVersion))
		j.mu.Unlock()
		<-time.After(3 * time.Millisecond) // or two would hardly meet
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.busy[cm.UID] == pod {
			delete(j.busy, cm.UID)
		}
		return reconcile.Result{}, nil
	}
}

// R15: with key UID a deletion is reconciled, also where nobody but the tombstone tells whose it is, and a namesake,
// which is mostly another member's, is reconciled by its owner whatever became of its predecessor.
func TestR15NamesakesWithKeyUID(t *testing.T) {
	t.Parallel()
	for _, kind := range []sharding.Mode{sharding.Filter, sharding.ShardSelector} {
		t.Run(kind.String(), func(t *testing.T) { testNamesakes(t, kind) })
	}
}

func testNamesakes(t *testing.T, kind sharding.Mode) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	j := &uidJournal{last: map[string]string{}, seen: map[string]bool{}, busy: map[types.UID]string{},
		story: map[string][]string{}}
	start := func(pod string) *replica {
		return startMember(t, namespace, pod, rota.Options{Key: slot.KeyUID, Delivery: kind},
			func(mgr *ctrlrt.Manager) error {
				return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(j.reconcile(pod, mgr.GetClient()))
			})
	}
	versions := map[string]string{}
	create := func(name string) {
		cm := configMap(namespace, name, "1")
		require.NoError(t, c.Create(t.Context(), cm))
		versions[name] = cm.ResourceVersion
	}
	remove := func(name string) {
		require.NoError(t, c.Delete(t.Context(), configMap(namespace, name, "")))
		versions[name] = ""
	}
	current := func() string {
		j.mu.Lock()
		defer j.mu.Unlock()
		for name, version := range versions {
			if got, known := j.last[name]; !known || got != version && !j.seen[version] {
				return fmt.Sprintf("%s was last reconciled at version %q, and never at %q:\n%s", name, got, version,
					strings.Join(j.story[name], "\n"))
			}
		}
		return ""
	}
	const objects = 24
	for i := range objects {
		create(fmt.Sprint("object-", i))
	}
	a, b := start("a"), start("b")
	eventually(t, 30*time.Second, settled(a, b))
	eventually(t, 10*time.Second, current)
	for range 5 {
		for i := range objects {
			remove(fmt.Sprint("object-", i))
			create(fmt.Sprint("object-", i))
		}
	}
	eventually(t, 20*time.Second, current)
	d := start("d")
	for i := range objects {
		remove(fmt.Sprint("object-", i))
		if i%3 > 0 {
			create(fmt.Sprint("object-", i))
		}
	}
	eventually(t, 30*time.Second, settled(a, b, d))
	eventually(t, 20*time.Second, current)
	for i := range objects {
		if i%3 > 0 {
			remove(fmt.Sprint("object-", i))
		}
	}
	eventually(t, 20*time.Second, current)
	a.leave(t)
	eventually(t, 10*time.Second, settled(b, d))
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, err := range j.errs {
		t.Error(err)
	}
}

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// over records that members can reach the API server again.
func (r *run) over() { r.reachable = journal.Now() }

// restartServer kills a server, and starts it again after half a lease.
func (r *run) restartServer(ctx context.Context, name string) error {
	plane := r.cluster.Plane
	return errors.Join(plane.KillServer(name), r.leases(ctx, 0.5), plane.StartServer(name))
}

const (
	membersServer = "apiserver-0"
	etcdServer    = "etcd-0"
)

var controlPlanes = []fault{
	{name: "apiserver-restart", fresh: true, what: "the members' API server is killed, and comes again after half a lease",
		do: func(ctx context.Context, r *run) error {
			if err := r.restartServer(ctx, membersServer); err != nil {
				return err
			}
			r.over()
			return nil
		}},
	{name: "apiserver-flapping", limit: true,
		what: "the members' API server is killed and comes again six times in a row; each time they have to list again, " +
			"and client-go waits longer before it does",
		do: func(ctx context.Context, r *run) error {
			for range 6 {
				plane := r.cluster.Plane
				err := errors.Join(plane.KillServer(membersServer), plane.StartServer(membersServer), r.leases(ctx, 2))
				if err != nil {
					return err
				}
			}
			r.over()
			return nil
		}},
	{name: "apiserver-failover", fresh: true,
		what: "the members' API server is killed; they go to another one, and back when it has come again",
		do: func(ctx context.Context, r *run) error {
			if err := r.cluster.Plane.KillServer(membersServer); err != nil {
				return err
			}
			for _, m := range r.live() {
				m.proxy.Use(1)
			}
			err := errors.Join(r.leases(ctx, 1), r.cluster.Plane.StartServer(membersServer))
			for _, m := range r.live() {
				m.proxy.Use(0)
				m.proxy.CutWatches() // as a load balancer does
			}
			return err
		}},
	{name: "etcd-restart", fresh: true, what: "etcd is killed, and comes again after half a lease",
		do: func(ctx context.Context, r *run) error {
			if err := r.restartServer(ctx, etcdServer); err != nil {
				return err
			}
			// API servers come back to it by themselves.
			err := await.Until(ctx, pollPeriod, restLimit, func() string {
				if _, err := r.table(ctx); err != nil {
					return err.Error()
				}
				return ""
			})
			r.over()
			return err
		}},
	{name: "compaction", fresh: true,
		what: "watches are cut and refused for half a lease, while etcd forgets old versions and the API server " +
			"restarts: they are answered 410",
		do: func(ctx context.Context, r *run) error {
			r.each(proxy.Faults{RefuseWatches: true})
			plane := r.cluster.Plane
			err := errors.Join(r.leases(ctx, 0.5), r.cluster.compact(ctx),
				plane.KillServer(membersServer), plane.StartServer(membersServer))
			r.each(proxy.Faults{})
			r.over()
			return err
		}},
}

var tableFaults = []fault{
	{name: "table-deleted", fresh: true, what: "somebody deletes the table", do: func(ctx context.Context, r *run) error {
		return errors.Join(r.deleteTable(ctx), r.remade(ctx))
	}},
	{name: "table-restored", fresh: true, what: "somebody deletes the table and creates it again from an old copy",
		do: func(ctx context.Context, r *run) error {
			old, err := r.oldTable(ctx)
			if err != nil {
				return err
			}
			if err := r.deleteTable(ctx); err != nil {
				return err
			}
			cm, err := r.cluster.tableObject(ctx, r.rota)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			cm.ObjectMeta = metav1.ObjectMeta{
				Name: r.rota, Namespace: rotaNamespace, Labels: map[string]string{names.LabelRota: r.rota},
			}
			cm.Data = old
			return errors.Join(r.cluster.client.Create(ctx, cm), r.remade(ctx))
		}},
	{name: "table-old-copy", fresh: true,
		what: "somebody puts an old copy over the table, on which members stop; somebody else deletes it after a lease",
		do: func(ctx context.Context, r *run) error {
			old, err := r.oldTable(ctx)
			if err != nil {
				return err
			}
			patch, err := json.Marshal(map[string]any{"data": old})
			if err != nil {
				return err
			}
			cm, err := r.cluster.tableObject(ctx, r.rota)
			if err != nil {
				return err
			}
			err = r.cluster.client.Patch(ctx, cm, client.RawPatch(types.MergePatchType, patch))
			err = errors.Join(err, r.leases(ctx, 1), r.deleteTable(ctx))
			r.over() // nobody may work before
			return errors.Join(err, r.remade(ctx))
		}},
}

func (r *run) deleteTable(ctx context.Context) error {
	cm, err := r.cluster.tableObject(ctx, r.rota)
	if err != nil {
		return err
	}
	return r.cluster.client.Delete(ctx, cm)
}

// oldTable returns the text of the table, and makes it old: it restarts a container, which changes the owners.
func (r *run) oldTable(ctx context.Context) (map[string]string, error) {
	cm, err := r.cluster.tableObject(ctx, r.rota)
	if err != nil {
		return nil, err
	}
	return cm.Data, errors.Join(r.restart(ctx, r.any()), r.rest(ctx))
}

// remade waits until the members have created or adopted a table.
func (r *run) remade(ctx context.Context) error {
	return r.until(ctx, func(t *table.Table) string {
		cm, err := r.cluster.tableObject(ctx, r.rota)
		switch {
		case err != nil:
			return err.Error()
		case t.UID != string(cm.UID):
			return "nobody has adopted the table"
		case t.Counts()[""] > 0:
			return "slots belong to nobody"
		default:
			return ""
		}
	})
}

var labelFaults = []fault{
	{name: "rollout-labels", planned: true, delivery: sharding.SlotLabel, what: "a rollout with delivery SlotLabel",
		do: doOf(plannedMoves, "rollout")},
	{name: "labels", delivery: sharding.SlotLabel,
		what: "somebody strips the labels by which objects are delivered, and makes them wrong, 20 times a second for 3 " +
			"leases",
		do: func(ctx context.Context, r *run) error {
			for end := time.Now().Add(3 * r.o.Lease); time.Now().Before(end); {
				sites := r.load.Sites()
				name := sites[r.random.IntN(len(sites))].Name
				obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: sitesNamespace}}
				patch := client.RawPatch(types.MergePatchType, spoiled(r.random))
				if err := r.cluster.client.Patch(ctx, obj, patch); client.IgnoreNotFound(err) != nil {
					return err
				}
				if err := await.Sleep(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		}},
	{name: "kill-uid", crash: true, delivery: sharding.ShardSelector,
		what: "a member is killed, with delivery ShardSelector", do: doOf(crashes, "kill")},
	{name: "strip-selector", planned: true, delivery: sharding.ShardSelector,
		what: "API servers ignore shard selectors for 2 leases, while a member joins and leaves",
		do: func(ctx context.Context, r *run) error {
			strip := proxy.Faults{StripShardSelector: true}
			r.each(strip)
			for _, m := range r.live() {
				m.proxy.CutWatches()
			}
			err := r.leases(ctx, 1)
			m, startErr := r.start(ctx)
			if err := errors.Join(err, startErr); err != nil {
				return err
			}
			m.proxy.Set(strip)
			err = errors.Join(r.joined(ctx, m.pod), r.leases(ctx, 1), m.leave())
			r.each(proxy.Faults{})
			for _, m := range r.live() {
				m.proxy.CutWatches()
			}
			return err
		}},
}

// doOf returns what a fault of a list does.
func doOf(list []fault, name string) func(context.Context, *run) error {
	for _, f := range list {
		if f.name == name {
			return f.do
		}
	}
	panic("no fault " + name)
}

// spoiled is a patch that removes an object's label, or sets it to another value or to an invalid one.
func spoiled(random *rand.Rand) []byte {
	value := []string{"null", strconv.Quote(strconv.Itoa(random.IntN(slot.MaxCount))), `"wrong"`}[random.IntN(3)]
	return []byte(strings.ReplaceAll(`{"metadata":{"labels":{"`+websiteLabel+`":VALUE}}}`, "VALUE", value))
}

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// restartServer kills a server, and starts it again after half a lease.
func restartServer(ctx context.Context, r *rig.Run, name string) error {
	plane := r.Plane
	return errors.Join(plane.KillServer(name), r.Sleep(ctx, 0.5), plane.StartServer(name))
}

const (
	membersServer = "apiserver-0"
	etcdServer    = "etcd-0"
)

var controlPlanes = []rig.Scenario{
	{Name: "apiserver-restart", Fresh: true, What: "the members' API server is killed, and comes again after half a lease",
		Do: func(ctx context.Context, r *rig.Run) error {
			if err := restartServer(ctx, r, membersServer); err != nil {
				return err
			}
			r.Reachable()
			return nil
		}},
	{Name: "apiserver-flapping", Limit: true,
		What: "the members' API server is killed and comes again six times in a row; each time they have to list again, " +
			"and client-go waits longer before it does",
		Do: func(ctx context.Context, r *rig.Run) error {
			for range 6 {
				plane := r.Plane
				err := errors.Join(plane.KillServer(membersServer), plane.StartServer(membersServer), r.Sleep(ctx, 2))
				if err != nil {
					return err
				}
			}
			r.Reachable()
			return nil
		}},
	{Name: "apiserver-failover", Fresh: true,
		What: "the members' API server is killed; they go to another one, and back when it has come again",
		Do: func(ctx context.Context, r *rig.Run) error {
			if err := r.Plane.KillServer(membersServer); err != nil {
				return err
			}
			for _, m := range r.Live() {
				m.Proxy.Use(1)
			}
			err := errors.Join(r.Sleep(ctx, 1), r.Plane.StartServer(membersServer))
			for _, m := range r.Live() {
				m.Proxy.Use(0)
				m.Proxy.CutWatches() // as a load balancer does
			}
			return err
		}},
	{Name: "etcd-restart", Fresh: true, What: "etcd is killed, and comes again after half a lease",
		Do: func(ctx context.Context, r *rig.Run) error {
			if err := restartServer(ctx, r, etcdServer); err != nil {
				return err
			}
			// API servers come back to it by themselves.
			err := r.UntilTable(ctx, func(*table.Table) string { return "" })
			r.Reachable()
			return err
		}},
	{Name: "compaction", Fresh: true,
		What: "watches are cut and refused for half a lease, while etcd forgets old versions and the API server " +
			"restarts: they are answered 410",
		Do: func(ctx context.Context, r *rig.Run) error {
			r.Each(proxy.Faults{RefuseWatches: true})
			plane := r.Plane
			err := errors.Join(r.Sleep(ctx, 0.5), compact(ctx, r),
				plane.KillServer(membersServer), plane.StartServer(membersServer))
			r.Each(proxy.Faults{})
			r.Reachable()
			return err
		}},
}

var tableFaults = []rig.Scenario{
	{Name: "table-deleted", Fresh: true, What: "somebody deletes the table",
		Do: func(ctx context.Context, r *rig.Run) error {
			return errors.Join(deleteTable(ctx, r), remade(ctx, r))
		}},
	{Name: "table-restored", Fresh: true, What: "somebody deletes the table and creates it again from an old copy",
		Do: func(ctx context.Context, r *rig.Run) error {
			old, err := oldTable(ctx, r)
			if err != nil {
				return err
			}
			if err := deleteTable(ctx, r); err != nil {
				return err
			}
			old.ObjectMeta = metav1.ObjectMeta{Name: old.Name, Namespace: old.Namespace, Labels: old.Labels}
			return errors.Join(r.Client.Create(ctx, old), remade(ctx, r))
		}},
	{Name: "table-old-copy", Fresh: true,
		What: "somebody puts an old copy over the table, on which members stop; somebody else deletes it after a lease",
		Do: func(ctx context.Context, r *rig.Run) error {
			old, err := oldTable(ctx, r)
			if err != nil {
				return err
			}
			patch, err := json.Marshal(map[string]any{"data": old.Data})
			if err != nil {
				return err
			}
			cm, err := r.TableObject(ctx)
			if err != nil {
				return err
			}
			err = r.Client.Patch(ctx, cm, client.RawPatch(types.MergePatchType, patch))
			err = errors.Join(err, r.Sleep(ctx, 1), deleteTable(ctx, r))
			r.Reachable() // nobody may work before
			return errors.Join(err, remade(ctx, r))
		}},
}

func deleteTable(ctx context.Context, r *rig.Run) error {
	cm, err := r.TableObject(ctx)
	if err != nil {
		return err
	}
	return r.Client.Delete(ctx, cm)
}

// oldTable returns the table's ConfigMap, and makes it old: it restarts a container, which changes the owners.
func oldTable(ctx context.Context, r *rig.Run) (*corev1.ConfigMap, error) {
	cm, err := r.TableObject(ctx)
	if err != nil {
		return nil, err
	}
	return cm, errors.Join(r.Restart(ctx, r.Any()), r.Rest(ctx))
}

// remade waits until the members have created or adopted a table.
func remade(ctx context.Context, r *rig.Run) error {
	return r.UntilTable(ctx, func(t *table.Table) string {
		cm, err := r.TableObject(ctx)
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

var labelFaults = []rig.Scenario{
	{Name: "rollout-labels", Planned: true, Delivery: sharding.SlotLabel, What: "a rollout with delivery SlotLabel",
		Do: doOf(plannedMoves, "rollout")},
	{Name: "labels", Delivery: sharding.SlotLabel,
		What: "somebody strips the labels by which objects are delivered, and makes them wrong, 20 times a second for 3 " +
			"leases",
		Do: func(ctx context.Context, r *rig.Run) error {
			for end := time.Now().Add(3 * r.Lease); time.Now().Before(end); {
				sites := r.Load.Sites()
				name := sites[r.Random.IntN(len(sites))].Name
				obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.Sites}}
				patch := client.RawPatch(types.MergePatchType, spoiled(r.Random))
				if err := r.Client.Patch(ctx, obj, patch); client.IgnoreNotFound(err) != nil {
					return err
				}
				if err := await.Sleep(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		}},
	{Name: "kill-uid", Crash: true, Delivery: sharding.ShardSelector,
		What: "a member is killed, with delivery ShardSelector", Do: doOf(crashes, "kill")},
	{Name: "strip-selector", Planned: true, Delivery: sharding.ShardSelector,
		What: "API servers ignore shard selectors for 2 leases, while a member joins and leaves",
		Do: func(ctx context.Context, r *rig.Run) error {
			strip := proxy.Faults{StripShardSelector: true}
			r.Each(strip)
			r.CutWatches()
			err := r.Sleep(ctx, 1)
			m, startErr := r.Start(ctx)
			if err := errors.Join(err, startErr); err != nil {
				return err
			}
			m.Proxy.Set(strip)
			err = errors.Join(r.Joined(ctx, m.Pod), r.Sleep(ctx, 1), m.Leave())
			r.Each(proxy.Faults{})
			r.CutWatches()
			return err
		}},
}

// doOf returns what a fault of a list does.
func doOf(list []rig.Scenario, name string) func(context.Context, *rig.Run) error {
	for _, f := range list {
		if f.Name == name {
			return f.Do
		}
	}
	panic("no fault " + name)
}

// spoiled is a patch that removes an object's label, or sets it to another value or to an invalid one.
func spoiled(random *rand.Rand) []byte {
	value := []string{"null", strconv.Quote(strconv.Itoa(random.IntN(slot.MaxCount))), `"wrong"`}[random.IntN(3)]
	return []byte(strings.ReplaceAll(`{"metadata":{"labels":{"`+rig.WebsiteLabel+`":VALUE}}}`, "VALUE", value))
}

// compact has etcd forget all versions but the present ones, so that who follows from an older one is answered 410.
func compact(ctx context.Context, r *rig.Run) error {
	var header struct {
		Header struct {
			Revision json.Number `json:"revision"`
		} `json:"header"`
	}
	if err := etcd(ctx, r, "/v3/kv/range", map[string]any{"key": []byte("x")}, &header); err != nil {
		return err
	}
	request := map[string]any{"revision": header.Header.Revision.String(), "physical": true}
	return etcd(ctx, r, "/v3/kv/compaction", request, &struct{}{})
}

func etcd(ctx context.Context, r *rig.Run, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Plane.Etcd()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("etcd: %s: %s: %s", path, resp.Status, text)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

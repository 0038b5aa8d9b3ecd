package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/oracle"
	"github.com/rota-dev/rota/test/rig/proxy"
)

const (
	// replicas is the number of members.
	replicas = 3
	// restLimit is how long the members may take to come to rest, beyond a few leases.
	restLimit = 60 * time.Second
	// pollPeriod is the time between two looks at the table.
	pollPeriod = 50 * time.Millisecond
)

// form is a rota. Each key needs one of its own, since the table is for one key.
type form struct {
	rota string
	key  slot.Key
}

// websiteLabel is the label by which Websites are delivered.
var websiteLabel = sharding.HashLabel(slot.KeyName, schema.GroupKind{Group: websites.Group, Kind: "Website"})

// unlabelled selects the Websites without the label by which they are delivered.
var unlabelled = func() labels.Selector {
	missing, err := labels.NewRequirement(websiteLabel, selection.DoesNotExist, nil)
	if err != nil {
		panic(err)
	}
	return labels.NewSelector().Add(*missing)
}()

var forms = []form{{"chaos", slot.KeyName}, {"chaos-uid", slot.KeyUID}}

// formOf returns the rota whose members use a mode of delivery.
func formOf(d sharding.Mode) form {
	if d == sharding.ShardSelector {
		return forms[1]
	}
	return forms[0]
}

// fleet is a control plane with its objects and the members that work there, run after run.
type fleet struct {
	o        *Options
	dir      string
	cluster  *cluster
	load     load
	recorder *recorder
	// followers show the tables, by rota.
	followers map[string]*rig.Follower
	end       context.CancelFunc
	work      sync.WaitGroup

	form
	delivery sharding.Mode
	members  []*member // all that ever were
	build    int
	fenced   map[string]bool // rotas
	// tables are the last versions before the present run, by rota.
	tables map[string]judge.History
	// first is the census from when nothing moved among the first members with this delivery.
	first oracle.Census
}

// openFleet starts a control plane and creates the objects. No member works yet.
func openFleet(ctx context.Context, o *Options, dir string, seed uint64) (*fleet, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c, err := openCluster(ctx, dir)
	if err != nil {
		return nil, err
	}
	s := &fleet{
		o: o, dir: dir, cluster: c, load: newLoad(c, seed), recorder: newRecorder(c.Client), fenced: map[string]bool{},
		tables: map[string]judge.History{}, followers: map[string]*rig.Follower{},
	}
	ctx, s.end = context.WithCancel(ctx)
	for _, f := range forms {
		follower, err := rig.NewFollower(c.Config, rotaNamespace, f.rota)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.followers[f.rota] = follower
		s.work.Go(func() { follower.Run(ctx, nil) })
	}
	s.work.Go(func() { s.recorder.run(ctx) })
	if err := s.load.Fill(ctx, o.Objects); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close ends everything at once.
func (s *fleet) close() error {
	s.end()
	s.load.Wait()
	s.work.Wait()
	for _, m := range s.members {
		m.remove()
	}
	return s.cluster.Close()
}

// start starts a member in a new Pod.
func (s *fleet) start(ctx context.Context) (*member, error) {
	pod := fmt.Sprintf("web-%d", len(s.members)+1)
	uid, token, err := s.cluster.identity(ctx, s.rota, pod)
	if err != nil {
		return nil, err
	}
	var upstreams []*rest.Config
	for i := range servers {
		upstreams = append(upstreams, s.cluster.Plane.ConfigFor(i))
	}
	p, err := proxy.New(uint64(len(s.members)), upstreams...)
	if err != nil {
		return nil, err
	}
	m := &member{pod: pod, proxy: p, command: s.o.Command, dir: s.dir, config: operatorConfig{
		Host: p.Host(), CA: p.CA(), Token: token, Rota: s.rota, Pod: pod, PodUID: string(uid),
		Build: fmt.Sprintf("v%d", s.build), Slots: s.o.Slots, Delivery: s.delivery, Lease: s.o.Lease,
	}}
	s.members = append(s.members, m)
	return m, m.start()
}

// live returns the members that are meant to be there, oldest first.
func (s *fleet) live() []*member {
	return slices.DeleteFunc(slices.Clone(s.members), (*member).ended)
}

func pods(members []*member) []string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.pod
	}
	return out
}

// prepare waits until nothing moves among the usual number of members, none of which was ever expelled. With fresh, all
// of them are new.
func (s *fleet) prepare(ctx context.Context, d sharding.Mode, fresh bool) error {
	if d != s.delivery || fresh {
		if err := s.clear(ctx); err != nil {
			return err
		}
	}
	first := d != s.delivery
	s.delivery, s.form = d, formOf(d)
	t, err := s.table(ctx)
	if err != nil {
		return err
	}
	for _, m := range s.live() {
		if t != nil && slices.ContainsFunc(t.Expels, func(e table.Expel) bool { return e.Pod == m.pod }) {
			if err := m.leave(); err != nil {
				return err
			}
		}
	}
	for len(s.live()) < replicas {
		if _, err := s.start(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(s.rest(ctx), s.labelled(ctx)); err != nil {
		return fmt.Errorf("before the run: %w", err)
	}
	if s.o.Fence && !s.fenced[s.rota] {
		if err := s.cluster.fence(ctx, s.rota); err != nil {
			return err
		}
		s.fenced[s.rota] = true
	}
	if first {
		s.first, err = s.census(ctx)
	}
	return err
}

// labelled waits, with delivery SlotLabel, until all objects have their labels: without one, an object reaches no
// member.
func (s *fleet) labelled(ctx context.Context) error {
	if s.delivery != sharding.SlotLabel {
		return nil
	}
	return await.Until(ctx, 5*pollPeriod, restLimit+time.Duration(s.o.Objects)*10*time.Millisecond, func() string {
		var list webv1.WebsiteList
		without := client.MatchingLabelsSelector{Selector: unlabelled}
		if err := s.cluster.client.List(ctx, &list, client.InNamespace(sitesNamespace), without); err != nil {
			return err.Error()
		}
		if n := len(list.Items); n > 0 {
			return fmt.Sprintf("%d objects have no label", n)
		}
		return ""
	})
}

// clear has all members leave.
func (s *fleet) clear(ctx context.Context) error {
	for _, m := range s.live() {
		if err := m.leave(); err != nil {
			return err
		}
	}
	return s.rest(ctx)
}

func (s *fleet) table(ctx context.Context) (*table.Table, error) {
	if s.rota == "" {
		return nil, nil // there is none
	}
	return s.cluster.table(ctx, s.rota)
}

// rest waits until exactly the live members share the slots, nothing moves, and what has to end has ended.
func (s *fleet) rest(ctx context.Context) error {
	if s.rota == "" {
		return nil
	}
	return await.Until(ctx, pollPeriod, restLimit+4*s.o.Lease, func() string {
		for _, m := range s.members {
			if problem := m.now().Lingers(); problem != "" && m.ended() {
				return problem
			}
		}
		t, err := s.table(ctx)
		if err != nil {
			return err.Error()
		}
		live := s.live()
		if t != nil && len(t.Members) > 0 && len(live) == 0 {
			return t.Members[0].Pod + " is still a member"
		} else if problem := judge.Quiet(t, pods(live)); problem != "" && len(live) > 0 {
			return problem
		}
		leases, reports, err := s.cluster.left(ctx, s.rota)
		if err != nil {
			return err.Error()
		}
		// Leases of processes that ended before they joined are deleted after two leases.
		if len(leases) != len(live) || len(reports) != len(live) {
			return fmt.Sprintf("there are %d Leases and %d reports of %d members", len(leases), len(reports), len(live))
		}
		return ""
	})
}

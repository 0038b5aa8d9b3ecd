package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	// replicas is the number of members before a scenario.
	replicas = 3
	// restLimit is how long the members may take to come to rest, beyond a few leases.
	restLimit = 60 * time.Second
	// pollPeriod is the time between two looks at the table.
	pollPeriod = 50 * time.Millisecond
	// requestLimit bounds a request of the rig itself.
	requestLimit = 10 * time.Second
	// servers is the number of API servers. Members use the first, the rig the second one.
	servers = 2
)

// Setup says what a Rig has.
type Setup struct {
	// Name is a namespace; the Websites are in NAME-sites. Dir is a folder for all files.
	Name, Dir string
	// Command is a program that calls OperatorMain, with its arguments.
	Command []string
	// Objects is the number of Websites, Rate how many of them are changed per second; half of that is one and the same.
	Objects int
	Rate    float64
	// Slots is the number of slots. Lease is the members' LeaseDuration; the other durations follow from it.
	Slots slot.Count
	Lease time.Duration
	// Fence has the API servers refuse writes by Pods that are not members.
	Fence bool
	// Seed is of the load.
	Seed uint64
}

// rotas are the names of rotas by the key of their slots: a table is for one key.
var rotas = map[slot.Key]string{slot.KeyName: "by-name", slot.KeyUID: "by-uid"}

// Rig runs scenarios one after another: on a control plane of two API servers, with a load that changes Websites and
// replicas that act as ServiceAccounts with tokens bound to Pods, each behind a proxy of its own.
type Rig struct {
	Setup
	*Cluster
	Load *Load

	accounts accounts
	// client has a limit for each request; Cluster.Client, which watches, has none.
	client   client.Client
	fleet    *Fleet
	recorder *recorder
	// followers show the tables, by rota.
	followers map[string]*Follower
	end       context.CancelFunc
	work      sync.WaitGroup

	rota     string
	key      slot.Key
	delivery sharding.Mode
	build    int
	fenced   map[string]bool // rotas
	// tables are the last versions before the present run, by rota.
	tables map[string]judge.History
	// first is the census from when nothing moved among the first members with this delivery.
	first judge.Census
}

// New starts a control plane and creates the objects. No replica works yet.
func New(ctx context.Context, s Setup) (_ *Rig, err error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, err
	}
	c, err := Open(ctx, Options{Name: s.Name, Dir: s.Dir, ControlPlane: controlplane.Options{
		Audit: true, APIServers: servers, Env: []string{FewCollections},
	}})
	if err != nil {
		return nil, err
	}
	r := &Rig{
		Setup: s, Cluster: c, fenced: map[string]bool{}, tables: map[string]judge.History{},
		followers: map[string]*Follower{}, recorder: newRecorder(c.Client, c.Sites),
	}
	background, end := context.WithCancel(ctx)
	r.end = end
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	cfg := rest.CopyConfig(c.Config)
	cfg.Timeout = requestLimit
	if r.client, err = client.New(cfg, client.Options{Scheme: c.Client.Scheme()}); err != nil {
		return nil, err
	}
	r.accounts = accounts{c, r.client}
	r.fleet = &Fleet{
		Dir: s.Dir, Command: s.Command, Restart: true,
		Operator: Operator{
			Namespace: c.Namespace, Sites: c.Sites, Slots: s.Slots, Lease: s.Lease, StatusOnly: true, Verbose: true,
		},
		Identify: func(ctx context.Context, pod string) (Identity, error) { return r.accounts.identify(ctx, r.rota, pod) },
	}
	r.Load = NewLoad(r.client, c.Sites, s.Seed, func(s *Site) webv1.WebsiteSpec {
		return webv1.WebsiteSpec{Title: s.Name, Content: "edition " + strconv.Itoa(s.Edition)}
	})
	for _, name := range DutyNames {
		if err := c.Create(ctx, dutyObject(c.Sites, name)); err != nil {
			return nil, err
		}
	}
	for _, rota := range rotas {
		if err := r.accounts.create(ctx, rota); err != nil {
			return nil, err
		}
		follower, err := NewFollower(c.Config, c.Namespace, rota)
		if err != nil {
			return nil, err
		}
		r.followers[rota] = follower
		r.work.Go(func() { follower.Run(background, nil) })
	}
	r.work.Go(func() { r.recorder.run(background) })
	return r, r.Load.Fill(ctx, s.Objects)
}

// Close ends everything at once.
func (r *Rig) Close() error {
	r.end()
	if r.Load != nil {
		r.Load.Wait()
		r.fleet.Close()
	}
	r.work.Wait()
	return r.Cluster.Close()
}

// Save copies journals, logs and audit logs into a folder, for whoever looks into a run that failed.
func (r *Rig) Save(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var files []string
	for _, pattern := range []string{r.Dir + "/*.journal", r.Dir + "/*.log", r.Plane.Dir() + "/*.log"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		files = append(files, more...)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(path)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a replica in a new Pod.
func (r *Rig) Start(ctx context.Context) (*Replica, error) {
	return r.fleet.Start(ctx, nil, func(o *Operator) {
		o.Rota, o.Delivery, o.Build = r.rota, r.delivery, fmt.Sprintf("v%d", r.build)
	})
}

// Live returns the replicas that are meant to be there, oldest first.
func (r *Rig) Live() []*Replica { return r.fleet.Live() }

// prepare waits until nothing moves among the usual number of members, none of which was ever expelled. With fresh, all
// of them are new.
func (r *Rig) prepare(ctx context.Context, d sharding.Mode, fresh bool) error {
	if d != r.delivery || fresh {
		for _, m := range r.Live() {
			if err := m.Leave(); err != nil {
				return err
			}
		}
		if err := r.Rest(ctx); err != nil {
			return err
		}
	}
	first := d != r.delivery
	r.delivery, r.key = d, slot.KeyName
	if d == sharding.ShardSelector {
		r.key = slot.KeyUID
	}
	r.rota = rotas[r.key]
	t, err := r.Table(ctx)
	if err != nil {
		return err
	}
	for _, m := range r.Live() {
		if t != nil && slices.ContainsFunc(t.Expels, func(e table.Expel) bool { return e.Pod == m.Pod }) {
			if err := m.Leave(); err != nil {
				return err
			}
		}
	}
	for len(r.Live()) < replicas {
		if _, err := r.Start(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(r.Rest(ctx), r.labelled(ctx)); err != nil {
		return fmt.Errorf("before the run: %w", err)
	}
	if r.Fence && !r.fenced[r.rota] {
		if err := r.accounts.fence(ctx, r.rota); err != nil {
			return err
		}
		r.fenced[r.rota] = true
	}
	if first {
		r.first, err = r.census(ctx)
	}
	return err
}

// WebsiteLabel is the label by which Websites are delivered.
var WebsiteLabel = sharding.HashLabel(slot.KeyName, schema.GroupKind{Group: websites.Group, Kind: "Website"})

// labelled waits, with delivery SlotLabel, until all objects have their labels: without one, an object reaches no
// member.
func (r *Rig) labelled(ctx context.Context) error {
	if r.delivery != sharding.SlotLabel {
		return nil
	}
	missing, err := labels.NewRequirement(WebsiteLabel, selection.DoesNotExist, nil)
	if err != nil {
		return err
	}
	without := client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*missing)}
	return await.Until(ctx, 5*pollPeriod, restLimit+time.Duration(r.Objects)*10*time.Millisecond, func() string {
		var list webv1.WebsiteList
		if err := r.client.List(ctx, &list, client.InNamespace(r.Sites), without); err != nil {
			return err.Error()
		}
		if n := len(list.Items); n > 0 {
			return fmt.Sprintf("%d objects have no label", n)
		}
		return ""
	})
}

// Rest waits until exactly the live members share the slots, nothing moves, and what has to end has ended.
func (r *Rig) Rest(ctx context.Context) error {
	if r.rota == "" {
		return nil
	}
	return await.Until(ctx, pollPeriod, restLimit+4*r.Lease, func() string {
		if problem := r.fleet.Lingers(); problem != "" {
			return problem
		}
		t, err := r.Table(ctx)
		if err != nil {
			return err.Error()
		}
		pods := r.fleet.Pods()
		if t != nil && len(t.Members) > 0 && len(pods) == 0 {
			return t.Members[0].Pod + " is still a member"
		} else if problem := judge.Quiet(t, pods); problem != "" && len(pods) > 0 {
			return problem
		}
		leases, reports, err := r.left(ctx)
		if err != nil {
			return err.Error()
		}
		// Leases of processes that ended before they joined are deleted after two leases.
		if len(leases) != len(pods) || len(reports) != len(pods) {
			return fmt.Sprintf("there are %d Leases and %d reports of %d members", len(leases), len(reports), len(pods))
		}
		return ""
	})
}

// TableObject returns the ConfigMap that holds the table.
func (r *Rig) TableObject(ctx context.Context) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.rota}, cm)
	return cm, err
}

// Table returns the table; nil if there is none.
func (r *Rig) Table(ctx context.Context) (*table.Table, error) {
	if r.rota == "" {
		return nil, nil
	}
	cm, err := r.TableObject(ctx)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return table.Decode(cm.Data)
}

// left returns the names of the members' Leases, and of those in which they report. Reports without a Lease it deletes,
// in place of the garbage collector, which does not run here.
func (r *Rig) left(ctx context.Context) (leases, reports []string, err error) {
	var told, list coordinationv1.LeaseList
	in := client.InNamespace(r.Namespace)
	if err := r.client.List(ctx, &told, in, client.MatchingLabels{names.LabelCoverage: r.rota}); err != nil {
		return nil, nil, err
	}
	if err := r.client.List(ctx, &list, in, client.MatchingLabels{names.LabelRota: r.rota}); err != nil {
		return nil, nil, err
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		leases = append(leases, list.Items[i].Name)
		there[list.Items[i].UID] = true
	}
	for i := range told.Items {
		report := &told.Items[i]
		if owners := report.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Lease" || there[owners[0].UID] {
			reports = append(reports, report.Name)
		} else if err := r.client.Delete(ctx, report); client.IgnoreNotFound(err) != nil {
			return nil, nil, err
		}
	}
	return leases, reports, nil
}

// census counts what there is.
func (r *Rig) census(ctx context.Context) (judge.Census, error) {
	c := judge.Census{Live: r.fleet.Pods(), Goroutines: map[string]int{}, Watches: map[string]int{}}
	var err error
	if c.Leases, c.Reports, err = r.left(ctx); err != nil {
		return c, err
	}
	t, err := r.Table(ctx)
	if err != nil {
		return c, err
	}
	for _, m := range t.Members {
		c.Members = append(c.Members, m.Pod)
	}
	for _, m := range r.Live() {
		if c.Goroutines[m.Pod], err = m.Goroutines(ctx); err != nil {
			return c, err
		}
		c.Watches[m.Pod] = m.Proxy.Watches()
	}
	return c, nil
}

// writer returns the Pod that wrote the status of a Website last.
func (r *Rig) writer(ctx context.Context, name types.NamespacedName) (string, error) {
	var site webv1.Website
	err := r.client.Get(ctx, name, &site)
	return PodOf(judge.Writer(site.Status.Checksum)), err
}

// dutyWriter returns the Pod that wrote for a duty last, and the version that it made.
func (r *Rig) dutyWriter(ctx context.Context, name string) (pod, version string, err error) {
	obj := dutyObject(r.Sites, name)
	err = r.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	return PodOf(judge.Writer(obj.Data[dutyField])), obj.ResourceVersion, err
}
